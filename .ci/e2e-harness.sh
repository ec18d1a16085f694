#!/usr/bin/env bash
# Runs the published agent harnesses with their presets against a scripted engine, without a network,
# and compares every row with the engine's log. Runs the official OpenAI SDKs through the tap. Prints
# a table of the harnesses. Keeps the output of all tests in .build/e2e-harness.log, or in TEST_LOG.
# SHORT=1, as in .ci/run, runs the SDKs and two harnesses, one with the dialect of each engine.
# HARNESSES and DIALECTS select some. CONTINUITY=1 also runs each with harness.continuity.
# ROLLOUT_HARNESS is the folder for the harnesses. Passes the arguments to go test.
# Exit status 75: the packages are not available here. This is not an error of the code.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
ROLLOUT_HARNESS=$(realpath -m "${ROLLOUT_HARNESS:-.build/harness}") || exit
export ROLLOUT_HARNESS TEST_LOG=${TEST_LOG:-.build/e2e-harness.log}
export ROLLOUT_PYTHON=${ROLLOUT_PYTHON:-$PWD/.build/venv/bin/python}
export HARNESSES=${HARNESSES:-} DIALECTS=${DIALECTS:-}
tests='^TestHarnesses$|^TestSDKs' packages='./cmd/rollout ./collector/tap/proxy'
cannot() {
  [ "$1" != 75 ] || echo 'e2e-harness: NOT CHECKED with real harnesses: see above' >&2
  exit "$1"
}
if [ -n "${SHORT:-}" ]; then
  HARNESSES=${HARNESSES:-pi mini-swe-agent}
  set -- -short "$@"
fi
# The SDKs are in mini-swe-agent and openai.
# shellcheck disable=SC2086 # a list
.ci/harnesses.sh ${HARNESSES:+$HARNESSES mini-swe-agent openai} || cannot $?

exec=()
if unshare --map-root-user --net -- sh -c 'ip link set lo up' 2>/dev/null; then
  exec=(-exec "$PWD/.ci/offline.sh")
else
  echo 'e2e-harness: WITH the network, because this machine allows no network namespaces' >&2
fi
began=$SECONDS
# shellcheck disable=SC2086 # lists
.ci/test.sh -count 1 -timeout 60m "${exec[@]}" -run "$tests" "$@" $packages
failed=$?
# The table begins with a line "all …". The lines below it are indented.
awk '/^ +[a-z_0-9]+\.go:[0-9]+: all / { on = 1; next } on && /^        / { print; next } { on = 0 }' "$TEST_LOG"
echo "e2e-harness: took $((SECONDS - began)) s"
exit "$failed"
