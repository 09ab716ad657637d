#!/usr/bin/env bash
# Builds the programs as they are given to others, packs them into target/packages and says how large they are.
# TARGET=aarch64-unknown-linux-gnu builds for another machine; that takes its Rust target and C compiler, and a
# STRAITCTL that runs here.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}
# Added to those of .cargo/config.toml, which RUSTFLAGS would replace: panics tell no path of this machine.
paths="--remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo"
here="--remap-path-prefix=$PWD=/strait"
"$cargo" build --locked --package strait --bins --profile dist ${TARGET:+--target "$TARGET"} \
  --config "build.rustflags=['$paths', '$here']"
built=target/${TARGET:+$TARGET/}dist
rm -rf target/packages
dist/pack.sh "$built" target/packages
{ (cd "$built" && stat -c '%n %s' strait-global strait-relay strait-zone straitctl) && (cd target/packages && stat -c '%n %s' -- *); } |
  awk '{ printf "%-50s %9.1f MB\n", $1, $2 / 1000000 }'
