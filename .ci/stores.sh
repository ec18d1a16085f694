#!/usr/bin/env bash
# Installs real S3 servers into .build/stores, or into ROLLOUT_STORES: versitygw and moto, which have
# conditional puts, and s3proxy, which ignores them and needs Java and Maven. Without Java or Maven,
# only s3proxy is missing.
# Exit status 75: the packages are not available here. This is not an error of the code.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
stores=$(realpath -m "${ROLLOUT_STORES:-.build/stores}")
versitygw=v1.8.0 moto=5.2.5 s3proxy=2.6.0
mkdir -p "$stores" || exit
missing() {
  echo "stores: $1 is not available here" >&2
  exit 75
}
# made NAME VERSION reports whether a server is installed; making NAME VERSION records it.
made() { [ "$(cat "$stores/.$1" 2>/dev/null)" = "$2" ]; }
making() { echo "$2" > "$stores/.$1"; }

if ! made versitygw $versitygw; then
  GOBIN=$stores GOFLAGS=-trimpath CGO_ENABLED=0 ${GO:-go} install "github.com/versity/versitygw/cmd/versitygw@$versitygw" || missing versitygw
  making versitygw $versitygw
fi
if ! made moto $moto; then
  rm -rf "$stores/moto"
  "${ROLLOUT_SYSTEM_PYTHON:-/usr/bin/python3}" -m venv "$stores/moto" || exit
  "$stores/moto/bin/python" -m pip install --quiet --disable-pip-version-check "moto[server]==$moto" || missing moto
  making moto $moto
fi
if ! made s3proxy $s3proxy && command -v mvn >/dev/null && command -v java >/dev/null; then
  rm -rf "$stores/s3proxy"
  mkdir -p "$stores/s3proxy"
  cat > "$stores/s3proxy/pom.xml" << END
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>stores</groupId><artifactId>stores</artifactId><version>1</version>
  <dependencies><dependency><groupId>org.gaul</groupId><artifactId>s3proxy</artifactId><version>$s3proxy</version></dependency></dependencies>
</project>
END
  (cd "$stores/s3proxy" && mvn -q -B org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies -DoutputDirectory=lib) || missing s3proxy
  making s3proxy $s3proxy
fi
