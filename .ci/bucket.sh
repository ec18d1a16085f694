# Starts versitygw, a real S3 server, for the scripts that need a bucket. Sets stores, the folder of the
# installed servers; work, a folder for the script; s3, the URL of the server, which has an empty bucket with
# the name bucket; and the credentials in the environment.
# Ends the script with status 75 if the packages are not available here.
# shellcheck shell=bash
export AWS_ACCESS_KEY_ID=test-key AWS_SECRET_ACCESS_KEY=test-secret
stores=$(realpath -m "${ROLLOUT_STORES:-.build/stores}")
status=0
ROLLOUT_STORES=$stores .ci/stores.sh || status=$?
[ $status != 75 ] || echo "$0: NOT CHECKED with real servers: see above" >&2
[ $status = 0 ] || exit $status

work=$(mktemp -d "$stores/run-XXXXXX") # not in /tmp: versitygw needs extended attributes
. .ci/servers.sh
mkdir -p "$work/versitygw/bucket"
port=$(free)
s3=http://127.0.0.1:$port
start versitygw "$stores/versitygw" --access "$AWS_ACCESS_KEY_ID" --secret "$AWS_SECRET_ACCESS_KEY" --port "127.0.0.1:$port" posix "$work/versitygw"
