#!/usr/bin/env bash
# Packs built programs: an archive for any Linux, a package for Debian and Ubuntu, what they are made of (SBOM), and
# checksums. The same programs give the same bytes, whoever packs them, wherever and when.
# Usage: dist/pack.sh FOLDER-OF-PROGRAMS FOLDER-FOR-PACKAGES
#   VERSION            of the packages; the one of the programs when not set
#   TARGET             triple the programs were built for; the machine's when not set
#   STRAITCTL          a straitctl that runs here, to write its pages, where those of TARGET do not
#   STRIP              takes symbols out of programs of TARGET; `strip` when not set
#   SOURCE_DATE_EPOCH  time of all files; the one of the last commit when not set
#   COMPRESS=no        saves time in tests
set -euo pipefail
programs=$(realpath "$1")
mkdir -p "$2"
out=$(realpath "$2")
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}
straitctl=${STRAITCTL:-$programs/straitctl}
version=${VERSION:-$("$straitctl" --version | cut -d' ' -f2)}
target=${TARGET:-$(rustc -vV | sed -n 's/^host: //p')}
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export LC_ALL=C TZ=UTC
umask 022
names=(strait-global strait-relay strait-zone straitctl)
case $target in
  x86_64-*) arch=amd64 ;;
  aarch64-*) arch=arm64 ;;
  *) arch= ;;
esac
if [ "${COMPRESS:-yes}" = no ]; then level=(-1) deb_compression=(-Znone); else level=(-9) deb_compression=(-Zxz); fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# What both kinds of packages hold, as it is below /usr.
usr=$work/usr
doc=$usr/share/doc/strait
mkdir -p "$usr/bin" "$usr/lib/systemd/system" "$usr/lib/sysusers.d" "$usr/lib/tmpfiles.d" "$doc/examples" \
  "$usr/share/strait/alerts"
for name in "${names[@]}"; do
  install -m 755 "$programs/$name" "$usr/bin/$name"
  "${STRIP:-strip}" --strip-all "$usr/bin/$name"
done
install -m 644 dist/systemd/*.service "$usr/lib/systemd/system/"
install -m 644 dist/systemd/strait.sysusers "$usr/lib/sysusers.d/strait.conf"
install -m 644 dist/systemd/strait.tmpfiles "$usr/lib/tmpfiles.d/strait.conf"
install -m 644 alerts/*.yaml "$usr/share/strait/alerts/"
install -m 644 docs/packages.md "$doc/packages.md"
install -m 644 dist/config/* "$doc/examples/"

"$straitctl" man "$usr/share/man/man1"
gzip -9n "$usr"/share/man/man1/*
completions() {
  mkdir -p "$(dirname "$usr/share/$2")"
  "$straitctl" completions "$1" >"$usr/share/$2"
}
completions bash bash-completion/completions/straitctl
completions zsh zsh/vendor-completions/_straitctl
completions fish fish/vendor_completions.d/straitctl.fish

"$cargo" metadata --locked --format-version 1 --filter-platform "$target" >"$work/metadata.json"
python3 dist/sbom.py "$work/metadata.json" "$target" "$version" "$usr/bin" "$out/strait-$version-$target.cdx.json" \
  "$doc/third-party.txt"
install -m 644 "$out/strait-$version-$target.cdx.json" "$doc/sbom.cdx.json"
find "$usr" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +

# The archive. Units name programs in /usr/bin.
archive=strait-$version-$target
mkdir "$work/$archive"
cp -a "$usr/." "$work/$archive/"
install -m 644 LICENSE "$work/$archive/LICENSE"
touch --date="@$SOURCE_DATE_EPOCH" "$work/$archive/LICENSE" "$work/$archive"
tar -C "$work" --sort=name --format=gnu --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" \
  -cf - "$archive" | gzip "${level[@]}" -n >"$out/$archive.tar.gz"
rm -rf "${work:?}/$archive"

# The package for Debian and Ubuntu.
if [ -n "$arch" ]; then
  root=$work/root
  control=$root/DEBIAN
  mkdir -p "$control" "$root/etc/strait"
  mv "$usr" "$root/usr"
  install -m 644 dist/config/global.yaml "$root/etc/strait/global.yaml"
  cat >"$root/usr/share/doc/strait/copyright" <<END
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: strait

Files: *
Copyright: the authors of Strait
License: Apache-2.0
 On Debian systems the text is in /usr/share/common-licenses/Apache-2.0.
Comment:
 The programs contain the libraries of sbom.cdx.json, under the licenses of third-party.txt.
END

  # What the programs ask of the machine is looked up in them, so that the package never promises too much.
  needed=$(for name in "${names[@]}"; do objdump -p "$root/usr/bin/$name"; done)
  for library in $(sed -n 's/^ *NEEDED *//p' <<<"$needed" | sort -u); do
    case $library in
      libc.so.6 | libm.so.6 | libdl.so.2 | libpthread.so.0 | librt.so.1 | ld-linux-*) ;;
      libgcc_s.so.1) gcc=', libgcc-s1' ;;
      *)
        echo "$library: no package is known for it" >&2
        exit 1
        ;;
    esac
  done
  glibc=$(grep -o 'GLIBC_[0-9.]*' <<<"$needed" | cut -d_ -f2 | sort -Vu | tail -n1)
  size=$(find "$root" -type f -not -path "$control/*" -printf '%s\n' | awk '{ kib += int(($1 + 1023) / 1024) } END { print kib }')
  cat >"$control/control" <<END
Package: strait
Version: $version
Architecture: $arch
Maintainer: The authors of Strait <strait@localhost>
Installed-Size: $size
Depends: libc6 (>= $glibc)${gcc:-}, systemd (>= 250)
Recommends: ca-certificates
Section: net
Priority: optional
Description: control plane for service meshes that span several zones
 A global control plane holds the policies, zones configure their Envoys, relays
 stand between global and many zones, and straitctl operates them. Speaks what
 Kuma 2.14 speaks.
END
  echo /etc/strait/global.yaml >"$control/conffiles"
  install -m 755 dist/deb/* "$control/"
  (cd "$root" && find etc usr -type f | sort | xargs md5sum) >"$control/md5sums"
  find "$root" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
  dpkg-deb --root-owner-group "${deb_compression[@]}" --build "$root" "$out/strait_${version}_$arch.deb" >/dev/null
fi

(cd "$out" && sha256sum "$archive.tar.gz" "$archive.cdx.json" ${arch:+"strait_${version}_$arch.deb"}) >"$out/SHA256SUMS"
