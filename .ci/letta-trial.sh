#!/usr/bin/env bash
# Tests the program against real Letta servers, for .ci/run. Runs the quick tests on the last
# version, and only the conformance test on the previous version. If no server can be installed,
# the script reports this and succeeds.
set -euo pipefail
cd "$(dirname "$0")/.."
status=0
.ci/letta.sh || status=$?
case $status in
  0)
    make e2e-letta SHORT=1 LETTA=0.16.8
    make e2e-letta SHORT=1 LETTA=0.16.7 RUN='^TestLetta$/^conform$'
    ;;
  75) echo 'e2e-letta: NOT CHECKED against a real Letta server: see above' ;;
  *) exit "$status" ;;
esac
