#!/usr/bin/env bash
# Runs go test with the given arguments. Prints the line of each package and every skipped test
# with the reason, and counts the tests. If tests fail, prints their output. If TEST_LOG is set,
# keeps the whole output in this file. Turns off the vet of go test, because make lint runs all its
# checks on the same files.
set -uo pipefail
cd "$(dirname "$0")/.."
mkdir -p .build
log=${TEST_LOG:-$(mktemp .build/test-XXXXXX.log)}
go test -vet=off -v "$@" 2>&1 | tee "$log" | grep -E '^(ok|FAIL|\?|panic:)[[:space:]]'
status=${PIPESTATUS[0]}
if [ "$status" != 0 ]; then
  # The first pass finds the failed tests. The second pass prints their lines and all lines
  # outside of tests: build errors, panics, races.
  awk '
    FNR == NR { if ($1 == "---" && $2 == "FAIL:") failed[$3] = 1; next }
    /^=== (RUN|PAUSE|CONT|NAME) / { of = $3; next }
    /^ *--- (PASS|FAIL|SKIP): / { of = $3; if ($2 == "FAIL:") print; next }
    /^(ok|\?|PASS|FAIL)([[:space:]]|$)/ { of = ""; next }
    of == "" || failed[of] { print }
  ' "$log" "$log" | tail -n 3000
  echo 'Failed:'
  grep -E '^[[:space:]]*--- FAIL' "$log"
fi
grep -E -B1 '^[[:space:]]*--- SKIP' "$log" | grep -vE '^(--$|=== )'
printf '%d passed, %d failed, %d skipped\n' \
  "$(grep -cE '^[[:space:]]*--- PASS' "$log")" "$(grep -cE '^[[:space:]]*--- FAIL' "$log")" "$(grep -cE '^[[:space:]]*--- SKIP' "$log")"
if ! grep -qE '^[[:space:]]*--- (PASS|FAIL|SKIP)' "$log"; then
  echo 'test.sh: no test ran: do these packages have a test of this name?' >&2
  [ "$status" != 0 ] || status=1
fi
[ -n "${TEST_LOG:-}" ] || rm -f "$log"
exit "$status"
