#!/usr/bin/env bash
# Tests package sink/store against real S3 servers on this machine. versitygw and moto must pass the
# tests that every store passes. s3proxy ignores conditions, and so it must be refused. Passes the
# arguments to go test.
# Exit status 75: the packages are not available here. This is not an error of the code.
set -euo pipefail
cd "$(dirname "$0")/.."
. .ci/bucket.sh
location() { echo "$1=s3://bucket?endpoint_override=http://127.0.0.1:$port"; }

mkdir -p "$work/s3proxy/bucket"
STORES=$(location versitygw)
# The same URL must work in pyarrow.
"${ROLLOUT_PYTHON:-.build/venv/bin/python}" - "${STORES#*=}" << 'END'
import sys
from pyarrow import fs
s3, path = fs.FileSystem.from_uri(sys.argv[1].replace("?", "/x?"))
with s3.open_output_stream(path) as f:
    f.write(b"x")
assert s3.get_file_info(path).size == 1
END
port=$(free)
start moto "$stores/moto/bin/moto_server" --host 127.0.0.1 --port "$port"
curl --silent --fail --output /dev/null --request PUT "http://127.0.0.1:$port/bucket"
STORES="$STORES $(location moto)"
UNCONDITIONAL_STORES=
if [ -d "$stores/s3proxy/lib" ]; then
  port=$(free)
  cat > "$work/s3proxy.conf" << END
s3proxy.authorization=none
s3proxy.endpoint=http://127.0.0.1:$port
jclouds.provider=filesystem
jclouds.filesystem.basedir=$work/s3proxy
END
  start s3proxy java -cp "$stores/s3proxy/lib/*" org.gaul.s3proxy.Main --properties "$work/s3proxy.conf"
  UNCONDITIONAL_STORES=$(location s3proxy)
else
  echo 'e2e-store: NOT CHECKED with s3proxy, because it needs Java and Maven' >&2
fi
export STORES UNCONDITIONAL_STORES
go test -count 1 -run '^(TestStores|TestUnconditional)$/^(versitygw|moto)' "$@" ./sink/store
