#!/usr/bin/env bash
# Runs the tests against the Letta server that .ci/letta.sh installed, with the given
# arguments of go test, and shows what they compared. All that they said stays in
# .build/e2e-letta.log, the logs of servers of a test that failed in .build/letta-logs.
set -uo pipefail
cd "$(dirname "$0")/.."
export ROLLOUT_LETTA=$PWD/.build/letta TEST_LOG=.build/e2e-letta.log
began=$SECONDS
# The tests of package live wait as long as they work, and go beside those of its cases.
.ci/test.sh -count 1 -p 2 -timeout 60m "$@" ./cmd/rollout/internal/live/...
status=$?
# A test's summary begins with "all …" and is indented below that.
awk '/^ +[a-z_]+\.go:[0-9]+: all / { on = 1; sub(/^ +[a-z_]+\.go:[0-9]+: /, ""); print; next } on && /^        / { print; next } { on = 0 }' "$TEST_LOG"
echo "e2e-letta: $((SECONDS - began)) s"
exit "$status"
