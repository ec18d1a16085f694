#!/usr/bin/env bash
# Tests rollout.log_to with the real experiment trackers, without a network: wandb's offline mode,
# and local folders for trackio, tensorboard and mlflow. Installs them into .build/trackers, and again
# after a change of this file. Passes the arguments to pytest.
# Exit status 75: the packages are not available here. This is not an error of the code.
set -euo pipefail
cd "$(dirname "$0")/.."
. .ci/unavailable.sh
base=${ROLLOUT_PYTHON:-$PWD/.build/venv/bin/python}
env=$PWD/.build/trackers
want="$(sha256sum .ci/trackers.sh) $base"
if [ "$(cat "$env/.made-from" 2>/dev/null)" != "$want" ]; then
  echo "trackers: making $env" >&2
  rm -rf "$env"
  "$base" -m venv --system-site-packages "$env"
  "$base" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > "$("$env/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/tests.pth"
  "$env/bin/python" -m pip install --quiet --disable-pip-version-check --no-cache-dir \
    wandb==0.31.0 trackio==0.43.0 tensorboard==2.21.0 mlflow==3.17.2 numpy==1.26.4 pandas==2.2.3 pyarrow==25.0.0 2>"$env/pip.log" || {
    cat "$env/pip.log" >&2
    unavailable "$env/pip.log" && echo 'trackers: NOT CHECKED: the packages are not available here: see above' >&2 && exit 75
    echo 'trackers: FAILED: the packages cannot be installed: see above' >&2
    exit 1
  }
  echo "$want" > "$env/.made-from"
fi
ROLLOUT_TRACKERS=1 ROLLOUT_PYTHON=$env/bin/python .ci/pytest.sh --source test_log_to.py "$@"
