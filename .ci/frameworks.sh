#!/usr/bin/env bash
# Runs the tests of the adapters, of rollout.trl and of rollout.verl with the real frameworks
# installed, instead of code extracted from their wheels: torch's data loading, Ray, the
# TransferQueue. Creates .build/frameworks (6 GB, because PyPI's torch contains CUDA), and
# recreates it after a change of this file.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD

python=${ROLLOUT_FRAMEWORKS_PYTHON:-/usr/bin/python3}
venv=.build/frameworks
want=$(sha256sum .ci/frameworks.sh | cut -d' ' -f1)
if [ "$(cat "$venv/.made-from" 2>/dev/null)" != "$want" ]; then
  echo "frameworks: making $venv" >&2
  rm -rf "$venv"
  "$python" -m venv "$venv"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-cache-dir \
    torch==2.11.0 tensordict==0.10.0 TransferQueue==0.1.11 trl==1.16.0 transformers==5.9.0 pyarrow pytest==9.2.0 \
    cachetools codetiming dill fastapi hydra-core peft==0.18.0 pillow pybind11 pylatexenc tensorboard torchdata uvicorn wandb
  # What the modules of tinker-cookbook, SkyRL and AReaL import that lay out rows.
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-cache-dir \
    aiofiles blobfile chz colorlog einops flask jaxtyping lark loguru numba openai skyrl-gym tenacity uvloop
  # Their other requirements are engines and services, and nothing here imports them.
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-cache-dir --no-deps \
    verl==0.9.1 tinker==0.38.0 tinker-cookbook==0.6.1 skyrl==0.3.0 areal==1.0.4
  echo "$want" > "$venv/.made-from"
fi

"$venv/bin/python" .ci/trainers.py # OpenRLHF cannot be installed here, because it needs vLLM and flash-attn
go build -trimpath -o bin/rollout ./cmd/rollout
away=$(mktemp -d)
trap 'rm -rf "$away"' EXIT
cd "$away"
export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$root/sink/python/src PATH=$root/bin:$PATH
export ROLLOUT_FRAMEWORKS=1 TRL_EXPERIMENTAL_SILENCE=1 RAY_AUTH_MODE=disabled HF_HUB_OFFLINE=1
"$root/$venv/bin/python" -m pytest -c "$root/sink/python/pyproject.toml" --rootdir "$root/sink/python" --basetemp "$away/tmp" -ra \
  "$root"/sink/python/tests/test_{trl,verl,adapters,one_gradient}.py "$@"
