#!/usr/bin/env bash
# Checks the trajectories of rollout export --to atif with the validator of an installed Harbor, on a Python
# that Harbor supports (3.12 or 3.13). The tests of the Python package run the same validator on more shapes
# of a run. Creates .build/harbor, and recreates it after a change of the pins.
# ROLLOUT_HARBOR_PYTHON names the Python.
# Exit status 75: the packages or a Python for them are not available here. This is not an error of the code.
set -euo pipefail
cd "$(dirname "$0")/.."
cannot() {
  echo "harbor: NOT CHECKED: $*" >&2
  exit 75
}
. .ci/unavailable.sh

python=
for p in ${ROLLOUT_HARBOR_PYTHON:-python3.13 python3.12 "$HOME"/.pyenv/versions/3.13.*/bin/python "$HOME"/.pyenv/versions/3.12.*/bin/python}; do
  if "$p" -c 'import sys, ensurepip, venv; sys.exit(not (3, 12) <= sys.version_info < (3, 14))' 2>/dev/null; then
    python=$p
    break
  fi
done
[ -n "$python" ] || cannot 'it needs Python 3.12 or 3.13 with the module venv; set ROLLOUT_HARBOR_PYTHON to one'
[ "$(uname -sm)" = 'Linux x86_64' ] || cannot "the hashes of the packages are for Linux on x86-64, not for $(uname -sm)"

venv=.build/harbor
want=$(cat .ci/harbor.sh .ci/harbor.txt | sha256sum | cut -d' ' -f1)
if [ "$(cat "$venv/.made-from" 2>/dev/null)" != "$want" ]; then
  rm -rf "$venv"
  "$python" -m venv "$venv"
  log=$venv/pip.log
  if ! "$venv/bin/python" -m pip --disable-pip-version-check --quiet install --no-deps --only-binary :all: --require-hashes -r .ci/harbor.txt 2>"$log"; then
    cat "$log" >&2
    ! unavailable "$log" || cannot 'the packages are not available here: see above'
    echo 'harbor: FAILED: the packages cannot be installed: see above' >&2
    exit 1
  fi
  echo "$want" > "$venv/.made-from"
fi

away=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server"; rm -rf "$away"' EXIT
go build -trimpath -o "$away/rollout" ./cmd/rollout # not bin/rollout, because .ci/run does other things at the same time
rollout=$away/rollout python=$PWD/$venv/bin/python
cd "$away"
"$rollout" simulate --listen 127.0.0.1:0 --input-ids --scripted 5 --drift 0.7 --wrong 0.4 --fault id-mismatch=0.1 \
  --write-tasks tasks.jsonl --ready-file ready >simulate.log 2>&1 &
server=$!
for _ in $(seq 300); do [ -s ready ] && break || sleep 0.1; done
# A run with forks, failures and cut rows; its samples have no reward.
"$rollout" collect --quiet --server "$(cat ready)" --model sglang//models/qwen3 --tasks tasks.jsonl --samples 4 --tokenizer simulated \
  --max-row-tokens 600 --fail-on-error 100% --out run 2>collect.log || [ $? = 3 ] || { cat collect.log >&2; exit 1; }
"$rollout" export run -o rows.jsonl 2>export.log
for shape in '"segment_index":1' '"truncated":true' '"reward":null'; do grep -q "$shape" rows.jsonl; done
grep -q 'not exported: .* failure row' export.log
"$rollout" export run --to atif -o atif.jsonl
"$python" - <<'EOF'
import json, sys
from harbor.utils.trajectory_validator import TrajectoryValidator

validator, lines = TrajectoryValidator(), [json.loads(line) for line in open("atif.jsonl")]
for line in lines:
    if not validator.validate(line):
        sys.exit(f"harbor: FAILED: {line['trajectory_id']}: {validator.get_errors()}")
lines[0]["steps"][0]["step_id"] = 2
if validator.validate(lines[0]):
    sys.exit("harbor: FAILED: the validator accepts a wrong step_id")
print(f"harbor: {len(lines)} trajectories are valid, with Python {sys.version.split()[0]}")
EOF
