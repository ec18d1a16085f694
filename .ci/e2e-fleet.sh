#!/usr/bin/env bash
# Collects a fleet of 5,000 samples in a bucket of a real S3 server. Its eight workers are killed, paused and cut
# off from the store, and a reader follows the fleet: the long form of TestFleetChaos. Passes the arguments to
# go test.
# Exit status 75: the packages are not available here. This is not an error of the code.
set -euo pipefail
cd "$(dirname "$0")/.."
. .ci/bucket.sh
ROLLOUT_FLEET=$s3 go test -count 1 -timeout 30m -v -run '^TestFleetChaos$' "$@" ./cmd/rollout
