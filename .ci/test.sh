#!/usr/bin/env bash
# Runs go test with the given arguments, shows each package's line and every skip
# with its reason, and counts. On failure it shows the tests that failed.
set -uo pipefail
cd "$(dirname "$0")/.."
mkdir -p .build
log=$(mktemp .build/test-XXXXXX.log)
go test -v "$@" 2>&1 | tee "$log" | grep -E '^(ok|FAIL|\?|panic:)[[:space:]]'
status=${PIPESTATUS[0]}
if [ "$status" != 0 ]; then
  grep -vE '^[[:space:]]*(=== |--- PASS)' "$log" | grep -vE '^(ok|\?)[[:space:]]' | tail -n 400
fi
grep -E -B1 '^[[:space:]]*--- SKIP' "$log" | grep -vE '^(--$|=== )'
printf '%d passed, %d failed, %d skipped\n' \
  "$(grep -cE '^[[:space:]]*--- PASS' "$log")" "$(grep -cE '^[[:space:]]*--- FAIL' "$log")" "$(grep -cE '^[[:space:]]*--- SKIP' "$log")"
rm -f "$log"
exit "$status"
