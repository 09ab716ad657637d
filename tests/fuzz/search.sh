#!/usr/bin/env bash
# Searches on with libFuzzer from the seeds of the replay, on every core, until each target has had its minutes of a core.
# Usage: tests/fuzz/search.sh [target] [minutes]; without a target all of them, in turns of FUZZ_TURN seconds.
#
# What was found, and how long it was searched, stays in .strait/fuzz/<target>: stopped and started again, it goes on. What
# breaks something lies in `found` there: copy it to tests/fuzz/found/<target>, and mend what it breaks.
set -euo pipefail
cd "$(dirname "$0")/../.."
goal=$((${2:-60} * 60))
turn=${FUZZ_TURN:-600}
work=$PWD/.strait/fuzz
program=$PWD/fuzz/target/$(rustc -vV | sed -n 's/^host: //p')/release/any

spent() { cat "$work/$1/seconds" 2>/dev/null || echo 0; }

# One turn of a target; what it prints goes into its log.
search() {
  local target=$1 folder=$work/$1 before seconds used
  before=$(spent "$target")
  seconds=$((goal - before < turn ? goal - before : turn))
  mkdir -p "$folder/corpus" "$folder/found"
  TIMEFORMAT=%U
  used=$({ time FUZZ_TARGET=$target "$program" "$folder/corpus" "$work/seeds/$target" \
    -max_total_time="$seconds" -max_len=65536 -timeout=10 -rss_limit_mb=4096 \
    -artifact_prefix="$folder/found/" -print_final_stats=1 >"$folder/log" 2>&1 || true; } 2>&1)
  awk '/stat::number_of_executed_units/ { print $2 }' "$folder/log" >>"$folder/executions"
  # At least a second, or a target that breaks at once would be tried for ever.
  echo $((before + (${used%.*} > 0 ? ${used%.*} : 1))) >"$folder/seconds"
  echo "$target: $(($(spent "$target") / 60)) of $((goal / 60)) minutes, $(ls "$folder/found" | wc -l) found"
}

# Targets that have not had their minutes, those that had least first.
waiting() {
  local target
  for target in "${targets[@]}"; do
    [ "$(spent "$target")" -ge "$goal" ] || echo "$(spent "$target") $target"
  done | sort -n | cut -d' ' -f2
}

command -v cargo-fuzz >/dev/null 2>&1 || cargo install --quiet --locked cargo-fuzz
FUZZ_SEEDS=$work/seeds FUZZ_RUNS=0 cargo test --quiet --package strait --test fuzz >/dev/null
targets=("${1:-}")
[ -n "${targets[0]}" ] || mapfile -t targets < <(ls "$work/seeds")

# Without a sanitizer: there is no unsafe code to catch, and it runs several times as fast.
cargo +nightly fuzz build --sanitizer none any
export goal turn work program
export -f search spent
while [ -n "$(waiting)" ]; do
  waiting | xargs -P "$(nproc)" -I{} bash -c 'set -euo pipefail; search {}'
done

printf '%-14s %8s %14s %8s %8s\n' target minutes executions inputs found
broken=0
for target in "${targets[@]}"; do
  folder=$work/$target
  found=$(ls "$folder/found" | wc -l)
  broken=$((broken + found))
  printf '%-14s %8d %14d %8d %8d\n' "$target" "$(($(spent "$target") / 60))" \
    "$(awk '{ all += $1 } END { print all + 0 }' "$folder/executions")" "$(ls "$folder/corpus" | wc -l)" "$found"
done
[ "$broken" -eq 0 ]
