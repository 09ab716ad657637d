#!/usr/bin/env bash
# Searches on with libFuzzer from the seeds of the replay. Usage: tests/fuzz/search.sh [target] [minutes];
# without a target each of them in turn. What breaks something lies in .strait/fuzz/<target>/found afterwards:
# copy it to tests/fuzz/found/<target>, and mend what it breaks.
set -euo pipefail
cd "$(dirname "$0")/../.."
minutes=${2:-60}
work=$PWD/.strait/fuzz

command -v cargo-fuzz >/dev/null 2>&1 || cargo install --quiet --locked cargo-fuzz
FUZZ_SEEDS=$work/seeds FUZZ_RUNS=0 cargo test --quiet --package strait --test fuzz >/dev/null
targets=("${1:-}")
[ -n "${targets[0]}" ] || mapfile -t targets < <(ls "$work/seeds")

# Without a sanitizer: there is no unsafe code to catch, and it runs several times as fast.
cargo +nightly fuzz build --sanitizer none any
for target in "${targets[@]}"; do
  mkdir -p "$work/$target/corpus" "$work/$target/found"
  FUZZ_TARGET=$target cargo +nightly fuzz run --sanitizer none any "$work/$target/corpus" "$work/seeds/$target" -- \
    -max_total_time=$((minutes * 60)) -max_len=65536 -timeout=10 -rss_limit_mb=4096 \
    -artifact_prefix="$work/$target/found/" -print_final_stats=1
done
