#!/usr/bin/env bash
# Runs the tests against each installed version of the Letta server, or against the versions
# in LETTA, and prints the comparisons. Passes the arguments to go test. Keeps the output of all
# tests in .build/e2e-letta-VERSION.log, and the server logs of failed tests in
# .build/letta-logs.
set -uo pipefail
cd "$(dirname "$0")/.."
failed=0
for version in ${LETTA:-0.16.7 0.16.8}; do
  export ROLLOUT_LETTA=$PWD/.build/letta-$version TEST_LOG=.build/e2e-letta-$version.log
  began=$SECONDS
  echo "e2e-letta: Letta $version"
  .ci/test.sh -count 1 -timeout 60m "$@" ./cmd/rollout/internal/live/... || failed=$?
  # The summary of a test begins with a line "all …". The lines below it are indented.
  awk '/^ +[a-z_]+\.go:[0-9]+: all / { on = 1; sub(/^ +[a-z_]+\.go:[0-9]+: /, ""); print; next } on && /^        / { print; next } { on = 0 }' "$TEST_LOG"
  echo "e2e-letta: Letta $version took $((SECONDS - began)) s"
done
exit "$failed"
