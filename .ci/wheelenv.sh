#!/usr/bin/env bash
# Builds the wheel of this platform and installs it into .build/wheelenv. Recreates this
# environment if the wheel has changed. The wheel's dependencies come from the environment of the
# tests (.build/venv, or ROLLOUT_PYTHON). Prints the path of the Python in .build/wheelenv.
set -euo pipefail
cd "$(dirname "$0")/.."
base=${ROLLOUT_PYTHON:-$PWD/.build/venv/bin/python}
env=$PWD/.build/wheelenv

wheel=$("$base" .ci/dist.py wheel)
want="$(sha256sum "$wheel") $base"
if [ "$(cat "$env/.made-from" 2>/dev/null)" != "$want" ]; then
  echo "wheelenv: installing $wheel" >&2
  rm -rf "$env"
  "$base" -m venv --system-site-packages "$env"
  "$base" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > "$("$env/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/tests.pth"
  "$env/bin/python" -m pip install --quiet --disable-pip-version-check --no-index "$wheel"
  echo "$want" > "$env/.made-from"
fi
echo "$env/bin/python"
