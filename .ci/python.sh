#!/usr/bin/env bash
# Creates the Python environment of the tests in .build/venv, and updates it after a change
# of .ci/requirements.txt. torch comes from the system (Debian's python3-torch, a CPU
# build), unless it is already installed.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=.build/venv
stamp=$venv/.made-from
want=$(cat .ci/requirements.txt .ci/python.sh | sha256sum | cut -d' ' -f1)
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$want" ] && "$venv/bin/python" -c 'import torch, pyarrow' 2>/dev/null; then
  exit 0
fi

python=${ROLLOUT_SYSTEM_PYTHON:-/usr/bin/python3}
say() { echo "python: $*" >&2; }

have_torch() { "$python" -c 'import torch' 2>/dev/null; }
have_venv() { "$python" -c 'import ensurepip, venv' 2>/dev/null; }
if ! have_torch || ! have_venv; then
  if ! command -v apt-get >/dev/null; then
    say "$python has no torch or no venv, and there is no apt-get to install them with"
    say "install a CPU build of torch for it, or set ROLLOUT_SYSTEM_PYTHON to a Python that has one"
    exit 1
  fi
  sudo=; [ "$(id -u)" = 0 ] || sudo=sudo
  say "installing the system packages python3-torch and python3-venv"
  $sudo apt-get update -qq
  DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends python3-torch python3-venv >/dev/null
fi

if ! "$venv/bin/python" -c 'import torch' 2>/dev/null; then
  say "making $venv"
  rm -rf "$venv"
  "$python" -m venv --system-site-packages "$venv"
fi
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r .ci/requirements.txt
"$venv/bin/python" -c 'import torch, numpy, pyarrow, duckdb, datasets; torch.from_numpy(numpy.zeros(1)); print("python: torch", torch.__version__, "numpy", numpy.__version__, "pyarrow", pyarrow.__version__)' >&2
echo "$want" > "$stamp"
