#!/usr/bin/env bash
# Creates .build/transformers/VERSION, an environment for each release of transformers whose
# rules tokenize/chat and tokenize/bpe implement. Recreates the environments after a change of
# this file. They do not need torch.
set -euo pipefail
cd "$(dirname "$0")/.."

python=${ROLLOUT_SYSTEM_PYTHON:-/usr/bin/python3}
want=jinja2-3.1.6
for version in 4.57.6 5.3.0 5.20.2 5.21.1 5.22.2 5.23.0 5.24.0; do
  venv=.build/transformers/$version
  [ "$(cat "$venv/.made-from" 2>/dev/null)" = "$want" ] && continue
  echo "transformers: making $venv" >&2
  rm -rf "$venv"
  "$python" -m venv "$venv"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "transformers==$version" jinja2==3.1.6
  "$venv/bin/python" -c 'import transformers; print("transformers:", transformers.__version__)' >&2
  echo "$want" > "$venv/.made-from"
done
