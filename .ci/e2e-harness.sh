#!/usr/bin/env bash
# Runs the published agent harnesses with their presets against a scripted engine, without a network:
# every scenario, with and without continuity, and 64 sessions at once in a run that is killed and
# resumed. Compares every row with the engine's log, and the numbers of rows with
# cmd/rollout/testdata/harnesses.txt. Runs the commands of configs/letta-memory/README.md, the official
# SDKs through the tap, and the commands of the README's section "Any agent". Keeps the output of
# all tests in .build/e2e-harness.log, or in TEST_LOG.
# SHORT=1, as in .ci/run, runs the SDKs and two harnesses once, one with the dialect of each engine.
# UPDATE=1 rewrites harnesses.txt and the table on the page instead, and runs only the scenarios.
# HARNESSES and DIALECTS select some. ROLLOUT_HARNESS is the folder for the harnesses. Passes the
# arguments to go test.
# Exit status 75: the packages are not available here. This is not an error of the code.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
ROLLOUT_HARNESS=$(realpath -m "${ROLLOUT_HARNESS:-.build/harness}") || exit
export ROLLOUT_HARNESS TEST_LOG=${TEST_LOG:-.build/e2e-harness.log}
export ROLLOUT_PYTHON=${ROLLOUT_PYTHON:-$PWD/.build/venv/bin/python}
export HARNESSES=${HARNESSES:-} DIALECTS=${DIALECTS:-}
tests='^TestHarnesses|^TestSDKs' packages='./cmd/rollout ./collector/tap/proxy'
cannot() {
  [ "$1" != 75 ] || echo 'e2e-harness: NOT CHECKED with real harnesses: see above' >&2
  exit "$1"
}
if [ -n "${SHORT:-}" ]; then
  HARNESSES=${HARNESSES:-pi codex}
  set -- -short "$@"
fi
if [ -n "${UPDATE:-}" ]; then
  tests='^TestHarnesses$' packages=./cmd/rollout
  set -- "$@" -update
fi
# The SDKs are in mini-swe-agent, openai and anthropic.
# shellcheck disable=SC2086 # a list
.ci/harnesses.sh ${HARNESSES:+$HARNESSES mini-swe-agent openai anthropic} || cannot $?

exec=()
if unshare --map-root-user --net -- sh -c 'ip link set lo up' 2>/dev/null; then
  exec=(-exec "$PWD/.ci/offline.sh")
else
  echo 'e2e-harness: WITH the network, because this machine allows no network namespaces' >&2
fi
began=$SECONDS
# shellcheck disable=SC2086 # lists
.ci/test.sh -count 1 -timeout 120m "${exec[@]}" -run "$tests" $packages "$@"
failed=$?
echo "e2e-harness: took $((SECONDS - began)) s"
[ "$failed" = 0 ] || exit "$failed"
if [ -n "${UPDATE:-}" ]; then
  exec go test -vet=off -count 1 -run '^TestHarnessPageTable$' ./cmd/rollout -update
fi
[ -n "${SHORT:-}" ] || exec .ci/anyagent.sh
