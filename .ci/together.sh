#!/usr/bin/env bash
# Runs shell commands at the same time. The first one's output is shown as it comes,
# each other one's in a block after it. Waits for all, and fails if one fails.
# usage: .ci/together.sh COMMAND COMMAND…
set -uo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'trap - TERM; kill 0' INT TERM # also what runs beside, which ignores an interrupt

run() { # N COMMAND
  local began=$SECONDS status=0
  bash -euo pipefail -c "$2" || status=$?
  echo "$status $((SECONDS - began))" >"$work/$1"
}

first=$1
shift
n=0
for command; do
  n=$((n + 1))
  run "$n" "$command" >"$work/$n.out" 2>&1 &
done
run 0 "$first"
wait

failed=()
n=0
for command in "$first" "$@"; do
  read -r status took <"$work/$n"
  [ "$n" = 0 ] || { echo "== beside it, in $took s: $command" && cat "$work/$n.out"; }
  [ "$status" = 0 ] || failed+=("$command: exit status $status")
  n=$((n + 1))
done
for f in "${failed[@]}"; do echo "together.sh: failed: $f" >&2; done
[ "${#failed[@]}" = 0 ]
