#!/usr/bin/env bash
# Prints the folders of the packages whose tests have a line that matches a pattern. go test then
# links only these packages.
# usage: .ci/having.sh PATTERN
set -euo pipefail
cd "$(dirname "$0")/.."
list=$(go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}} {{join .TestGoFiles " "}} {{join .XTestGoFiles " "}}{{end}}' ./...)
found=0
while read -r dir files; do
  # shellcheck disable=SC2086 # a list of names
  if (cd "$dir" && grep -qE -- "$1" $files); then
    echo ".${dir#"$PWD"}"
    found=1
  fi
done <<<"$list"
[ "$found" = 1 ] || { echo "having.sh: no test has a line like $1" >&2; exit 1; }
