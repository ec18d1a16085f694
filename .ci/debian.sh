#!/usr/bin/env bash
# Unpacks Debian packages into a folder, with the packages that they need and this machine lacks. Does not
# install them, so it starts no services and needs no root.
# usage: .ci/debian.sh DIR PACKAGE…
# Exit status 75: the packages are not available here. This is not an error of the code.
set -euo pipefail
dir=$1
shift
packages=$*
[ "$(cat "$dir/.packages" 2>/dev/null)" != "$packages" ] || exit 0
missing() {
  echo "debian: $1: Debian's packages $packages are not available here" >&2
  exit 75
}
command -v apt-get >/dev/null || missing 'no apt-get'
apt-get update -qq 2>/dev/null || true # without root, apt has only the lists of an earlier update
names=$(apt-get install --print-uris -qq --reinstall --no-install-recommends "$@" | sed -n "s/^'[^']*' \([^_]*\)_.*/\1/p") || missing 'apt-get install'
rm -rf "$dir"
mkdir -p "$dir/.debs"
cd "$dir/.debs"
# shellcheck disable=SC2086 # a list
apt-get download -qq -o APT::Sandbox::User=root $names || missing 'apt-get download'
for deb in *.deb; do dpkg-deb -x "$deb" ..; done
cd ..
rm -r .debs
echo "$packages" > .packages
