#!/usr/bin/env bash
# Runs every fuzz target of the module for the given time, one after the other.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-30s}
mkdir -p .build
log=$(mktemp .build/fuzz-XXXXXX.log)
trap 'rm -f "$log"' EXIT

# fuzz PACKAGE TARGET. At the very end of its time the go command sometimes fails with only
# "context deadline exceeded" (golang.org/issue/48591). No input failed then.
fuzz() {
  if go test -run '^$' -fuzz "^$2\$" -fuzztime "$time" -fuzzminimizetime 1x "$1" 2>&1 | tee "$log"; then
    ! grep -q 'no fuzz tests to fuzz' "$log"
    return
  fi
  grep -q '^    context deadline exceeded$' "$log" && ! grep -qE 'Failing input|panic|_test\.go:' "$log" || return 1
  echo "fuzz: $2: its time was over, and no input failed" >&2
}

# The targets are read from the files, because go test -list builds the tests of every package.
git grep -oE '^func Fuzz[A-Za-z0-9_]+' -- '*_test.go' | while IFS=: read -r file target; do
  pkg=./$(dirname "$file") target=${target#func }
  echo "fuzz: $pkg $target $time" >&2
  fuzz "$pkg" "$target" </dev/null
done
