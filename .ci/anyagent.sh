#!/usr/bin/env bash
# Runs the five commands in the section "Any agent" of README.md, exactly as they are printed: in a
# fresh Python environment, with a wheel of this source and with mini-swe-agent from PyPI. Checks the
# rows. Only the first command, pip install, has a network.
# Set ROLLOUT_WHEEL to a wheel of this source if one exists.
# Exit status 75: mini-swe-agent cannot be had here. This is not an error of the code.
set -euo pipefail
cd "$(dirname "$0")/.."
base=${ROLLOUT_PYTHON:-$PWD/.build/venv/bin/python}
say() { echo "anyagent: $*" >&2; }

commands=$(awk '/^## /{any = $0 == "## Any agent"} any && /^```sh$/{inside = 1; next} /^```$/{if (inside) exit} inside' README.md)
[ "$(grep -c . <<<"$commands")" = 5 ] || { say "the section does not have five commands: $commands"; exit 1; }
[ "$(head -n 1 <<<"$commands")" = 'pip install dist/*.whl mini-swe-agent' ] || { say "the first command does not install the wheel: $commands"; exit 1; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/dist" "$work/home"
if [ -n "${ROLLOUT_WHEEL:-}" ]; then
  cp "$ROLLOUT_WHEEL" "$work/dist"
else
  "$base" .ci/dist.py --out "$work/dist" wheel >/dev/null
fi
"$base" -m venv "$work/env"
if ! "$work/env/bin/pip" download --quiet --no-deps --dest "$work/probe" mini-swe-agent; then
  say 'NOT CHECKED: PyPI or mini-swe-agent cannot be had: see above'
  exit 75
fi
cd "$work"

# here runs a command with the fresh environment, and with the settings of pip.
here() {
  local pip=()
  mapfile -t pip < <(env | grep -E '^(PIP_|SSL_CERT|REQUESTS_CA|[a-zA-Z]+_(proxy|PROXY))[A-Za-z_]*=' || true)
  env -i HOME="$work/home" PATH="$work/env/bin:/usr/bin:/bin" LANG=C.UTF-8 "${pip[@]}" "$@"
}
began=$SECONDS
here sh -ec "$(head -n 1 <<<"$commands")" >"$work/pip.log" 2>&1 || { cat "$work/pip.log" >&2; exit 1; }

offline=()
if unshare --map-root-user --net -- sh -c 'ip link set lo up' 2>/dev/null; then
  offline=(unshare --map-root-user --net -- sh -c 'ip link set lo up && exec "$@"' sh)
else
  say 'WITH the network, because this machine allows no network namespaces'
fi
cat >steps <<STEPS
set -e
trap 'kill \$! 2>/dev/null; wait' EXIT
$(tail -n +2 <<<"$commands")
rollout verify run3
python - <<'PYTHON'
from rollout import log

rows = log.table("run3").to_pylist()
assert len({r["sample_index"] for r in rows}) == 8, rows
for r in rows:
    assert (r["verification"], r["chain_kind"], r["reward"]) == ("exact", "main", 1.0) and any(r["loss_mask"]), r
print(len(rows), "rows of 8 rollouts of mini-swe-agent")
PYTHON
STEPS
here "${offline[@]}" sh steps >steps.log 2>&1 || { cat steps.log >&2; exit 1; }
say "$(grep ' rows of ' steps.log), from pip install in $((SECONDS - began)) s"
