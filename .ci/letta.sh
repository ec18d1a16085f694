#!/usr/bin/env bash
# Installs a Letta server with PostgreSQL and pgvector into .build/letta-VERSION, only from
# Python packages. Installs it again if this file or the pins change. The tests of
# cmd/rollout/internal/live run against it. Without an argument it installs both supported
# versions, which require the same packages. An interrupted installation is repeated; the
# caches of pip and uv keep the downloads.
# Exit status 75: the packages are not available here. This is not an error of the code.
set -euo pipefail
cd "$(dirname "$0")/.."

[ $# -gt 0 ] || set -- 0.16.7 0.16.8
pins=$PWD/.ci/letta-constraints.txt
want=$(cat .ci/letta.sh "$pins" | sha256sum | cut -d' ' -f1)
say() { echo "letta: $*" >&2; }
cannot() {
  say "NOT INSTALLED: $*"
  say "the tests against a real Letta server cannot run here"
  exit 75
}

# PostgreSQL's package exists for Linux on x86 and for these Python releases.
python=
for p in ${ROLLOUT_LETTA_PYTHON:-python3.12 python3.11 python3 /usr/bin/python3}; do
  if "$p" -c 'import sys, ensurepip, venv; sys.exit(not (3, 11) <= sys.version_info < (3, 13))' 2>/dev/null; then
    python=$p
    break
  fi
done
[ -n "$python" ] || cannot 'it needs Python 3.11 or 3.12 with the module venv; set ROLLOUT_LETTA_PYTHON to one'
[ "$(uname -sm)" = 'Linux x86_64' ] || cannot "there is no package of PostgreSQL for $(uname -sm)"

# install installs one version. It runs in a subshell that holds the lock.
install() (
  version=$1
  mkdir -p .build
  home=$(cd .build && pwd -P)/letta-$version
  exec 9>"$home.lock"
  flock 9
  [ "$(cat "$home/.made-from" 2>/dev/null)" != "$want" ] || exit 0

  say "installing Letta $version into $home (1 GB, a minute or two)"
  rm -rf "$home"
  mkdir -p "$home"
  "$python" -m venv "$home/venv"
  pip() { "$home/venv/bin/python" -m pip --disable-pip-version-check --quiet "$@"; }
  # The resolver of an old pip fails on Letta's requirements.
  pip install -c "$pins" pip uv || cannot "Python's packages cannot be had: see above"
  # Only the source distribution contains the database migrations.
  pip download --build-constraint "$pins" --no-binary letta --no-deps -d "$home/download" "letta==$version" || cannot "the package letta $version cannot be had: see above"
  mkdir "$home/source"
  tar xzf "$home/download/letta-$version.tar.gz" -C "$home/source" --strip-components=1 "letta-$version/alembic" "letta-$version/alembic.ini"

  uv() { VIRTUAL_ENV=$1 "$home/venv/bin/uv" pip install --quiet --compile-bytecode -c "$pins" "${@:2}"; }
  uv "$home/venv" "letta[postgres,server,redis]==$version" transformers jinja2 pgserver
  # Letta runs tools in a separate environment. It starts faster without Letta in it.
  "$python" -m venv --without-pip "$home/tools"
  uv "$home/tools" pydantic

  rm -r "$home/download"
  echo "$want" > "$home/.made-from"
  say "installed"
)

for version; do install "$version"; done
