#!/usr/bin/env bash
# Runs shell commands in parallel. Prints the output of the first command immediately, and then the
# output of each other command as one block. Waits for all commands. Fails if one of them fails, and
# then prints the end of its output again.
# usage: .ci/together.sh COMMAND COMMAND…
set -uo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

run() { # N COMMAND
  local began=$SECONDS status=0
  bash -euo pipefail -c "$2" || status=$?
  echo "$status $((SECONDS - began))" >"$work/$1"
}

first=$1
shift
n=0
beside=()
set -m # each job beside gets a process group of its own, so that all its processes can be ended
for command; do
  n=$((n + 1))
  run "$n" "$command" >"$work/$n.out" 2>&1 </dev/null &
  beside+=("-$!")
done
set +m
trap 'kill -- "${beside[@]}" 2>/dev/null; exit 143' HUP INT TERM
run 0 "$first" 2>&1 | tee "$work/0.out"
[ -z "$(jobs -r)" ] || echo "together.sh: waiting for: $*" >&2
wait

failed=()
n=0
for command in "$first" "$@"; do
  status='unknown: it was killed' took='?'
  [ ! -s "$work/$n" ] || read -r status took <"$work/$n"
  [ "$n" = 0 ] || { echo "== beside it, in $took s: $command" && cat "$work/$n.out"; }
  [ "$status" = 0 ] || failed+=("$n" "$command: exit status $status")
  n=$((n + 1))
done
set -- "${failed[@]}"
while [ $# -gt 0 ]; do
  tail -n 12 "$work/$1.out" >&2
  echo "together.sh: failed: $2" >&2
  shift 2
done
[ "${#failed[@]}" = 0 ]
