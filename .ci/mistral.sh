#!/usr/bin/env bash
# Creates .build/mistral, an environment with mistral-common. The tests compare tokenize/bpe with
# mistral-common on tekken.json. Recreates the environment after a change of this file.
set -euo pipefail
cd "$(dirname "$0")/.."

python=${ROLLOUT_SYSTEM_PYTHON:-/usr/bin/python3}
venv=.build/mistral
want="mistral-common==1.13.1 tiktoken==0.14.0"
[ "$(cat "$venv/.made-from" 2>/dev/null)" = "$want" ] && exit 0
echo "mistral: making $venv" >&2
rm -rf "$venv"
"$python" -m venv "$venv"
# shellcheck disable=SC2086 # two words
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check $want
"$venv/bin/python" -c 'import mistral_common; print("mistral: mistral-common", mistral_common.__version__)' >&2
echo "$want" > "$venv/.made-from"
