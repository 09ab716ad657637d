#!/usr/bin/env bash
# Runs all tests. An end-to-end test starts real processes and waits for what they do, on a machine it shares
# with other tests and with strangers. So one that failed beside others is run once more, alone. If it fails
# again the run has failed; if it passes it is named at the end, as a fault to be found.
set -uo pipefail
cargo=${CARGO:-cargo}
# More than these at once are no accident.
most=3
# End-to-end tests wait more than they work, so there is room for two more than there are cores.
export RUST_TEST_THREADS=${RUST_TEST_THREADS:-$(($(nproc) + 2))}

log=$(mktemp)
trap 'rm -f "$log"' EXIT
"$cargo" test --workspace --no-fail-fast 2>&1 | tee "$log"
status=${PIPESTATUS[0]}
if [ "$status" -eq 0 ]; then exit 0; fi

# Cargo ends with a line for each target that failed.
targets=$(sed -n 's/^    `\(-p .*\)`$/\1/p' "$log")
if [ "$targets" != "-p strait --test e2e" ]; then exit "$status"; fi
mapfile -t failed < <(sed -n 's/^test \(.*\) \.\.\. FAILED$/\1/p' "$log" | sort -u)
if [ "${#failed[@]}" -eq 0 ] || [ "${#failed[@]}" -gt "$most" ]; then exit "$status"; fi

echo "once more, alone: ${failed[*]}"
"$cargo" test --package strait --test e2e -- --exact --test-threads 1 "${failed[@]}" || exit
echo "UNSTABLE: failed beside other tests and passed alone: ${failed[*]}"
