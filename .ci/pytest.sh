#!/usr/bin/env bash
# Runs the tests of the Python package. Passes the arguments to pytest.
# usage: .ci/pytest.sh [--source] [ARGUMENT…]
# The tests use the installed wheel of this source (.ci/wheelenv.sh) and run in a folder without
# the source. With --source, they use sink/python/src and bin/rollout instead, which is faster
# during development.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
base=${ROLLOUT_PYTHON:-$root/.build/venv/bin/python}
export PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1

if [ "${1:-}" = --source ]; then
  shift
  CGO_ENABLED=0 go build -trimpath -o bin/rollout ./cmd/rollout
  python=$base
  export PYTHONPATH=$root/sink/python/src PATH=$root/bin:$PATH
else
  python=$(.ci/wheelenv.sh)
  ROLLOUT_WHEEL=$(echo "$root"/dist/rollout*.whl)
  export ROLLOUT_WHEEL # for the tests that need the file
fi

away=$(mktemp -d)
trap 'rm -rf "$away"' EXIT
cd "$away"
# Arguments that name tests are relative to the folder of the tests.
args=()
for a in "$@"; do
  case $a in test_*) a=$root/sink/python/tests/$a ;; esac
  args+=("$a")
done
[[ " ${args[*]-} " == *"/tests/test_"* ]] || args+=("$root/sink/python/tests")
"$python" -m pytest -c "$root/sink/python/pyproject.toml" --rootdir "$root/sink/python" --basetemp "$away/tmp" -ra "${args[@]}"
