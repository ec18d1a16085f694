#!/usr/bin/env bash
# Runs every fuzz target of the module for the given time, one target after the other. Compiles
# each package only once for all its targets.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-30s}
root=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
corpus=$(go env GOCACHE)/fuzz # where the go command keeps what it found
module=$(go list -m)

# fuzz FOLDER TARGET runs a target. At the end of its time, a target sometimes fails with only
# "context deadline exceeded" (golang.org/issue/48591). fuzz ignores this error, because no input
# failed.
fuzz() {
  if (cd "$root/$1" && "$work/fuzz.test" -test.run '^$' -test.fuzz "^$2\$" -test.fuzztime "$time" -test.fuzzminimizetime 1x \
    -test.fuzzcachedir "$corpus/$module/$1" </dev/null 2>&1) | tee "$work/log"; then
    return
  fi
  grep -q '^    context deadline exceeded$' "$work/log" && ! grep -qE 'Failing input|panic|_test\.go:' "$work/log" || return 1
  echo "fuzz: $2: its time was over, and no input failed" >&2
}

folders=$(.ci/having.sh '^func Fuzz')
for folder in $folders; do
  folder=${folder#./}
  go test -c -fuzz . -o "$work/fuzz.test" "./$folder"
  targets=$("$work/fuzz.test" -test.list '^Fuzz' | grep '^Fuzz')
  for target in $targets; do
    echo "fuzz: ./$folder $target $time" >&2
    fuzz "$folder" "$target"
  done
done
