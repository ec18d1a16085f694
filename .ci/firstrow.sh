#!/usr/bin/env bash
# Runs the exact commands of the README's quick start, from a wheel to the first verified row, on
# a machine without Go. Prints how long this takes.
# usage: .ci/firstrow.sh [--here]
# By default, the machine is a fresh Debian that debootstrap installs in .build/firstrow, with its
# own user and no network. This needs root. The packages that pip would fetch are fetched before
# the clock starts. Exit status 75: Debian's packages are not available. --here uses a fresh Python
# environment on this machine instead. This environment has a PATH and a home without Go, and the
# packages of the tests' environment. Set ROLLOUT_WHEEL to a wheel of this source if one exists.
set -euo pipefail
cd "$(dirname "$0")/.."
base=${ROLLOUT_PYTHON:-$PWD/.build/venv/bin/python}
say() { echo "firstrow: $*" >&2; }

commands=$(awk '/^## /{quick = $0 == "## Quick start"} quick && /^```sh$/{inside = 1; next} /^```$/{if (inside) exit} inside' README.md)
[ "$(grep -c . <<<"$commands")" = 3 ] || { say "the quick start of README.md is not three commands: $commands"; exit 1; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/dist"
if [ -n "${ROLLOUT_WHEEL:-}" ]; then
  cp "$ROLLOUT_WHEEL" "$work/dist"
  wheel=$work/dist/$(basename "$ROLLOUT_WHEEL")
else
  wheel=$("$base" .ci/dist.py --out "$work/dist" wheel)
fi

# steps COMMANDS prints the shell script that runs the commands in a folder that contains dist.
steps() {
  cat <<STEPS
set -e
command -v go rollout >/dev/null && { echo 'there is a go or a rollout on PATH already' >&2; exit 1; }
trap 'kill \$! 2>/dev/null; wait' EXIT
$1
rollout verify run1
python - <<'PYTHON'
from rollout import log
rows = log.table("run1")
assert rows.num_rows > 0 and set(rows["verification"].to_pylist()) <= {"exact", "count_verified"}
print("the first of", rows.num_rows, "rows:", {c: rows[c][0].as_py() for c in ("task_id", "verification", "reward")}, len(rows["input_ids"][0]), "tokens")
PYTHON
STEPS
}

if [ "${1:-}" = --here ]; then
  # Use another port, because the README's port can be in use.
  port=$("$base" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
  steps "$(sed "s/8283/$port/; s/^rollout simulate /&--listen 127.0.0.1:$port /" <<<"$commands")" > "$work/steps"
  "$base" -m venv --system-site-packages "$work/env"
  mkdir "$work/bin"
  ln -s "$(command -v sh)" "$(command -v sleep)" "$work/bin"
  "$base" -c 'import pyarrow, pathlib; print(pathlib.Path(pyarrow.__file__).parents[1])' > "$(echo "$work"/env/lib/python*/site-packages)/tests.pth"
  began=$(date +%s%N)
  (cd "$work" && exec env -i HOME="$work" PATH="$work/env/bin:$work/bin" PIP_NO_INDEX=1 PIP_DISABLE_PIP_VERSION_CHECK=1 sh steps)
else
  [ "$(id -u)" = 0 ] || { say 'wants root, for a chroot; --here does not'; exit 1; }
  cache=.build/firstrow
  mkdir -p "$cache"
  if [ ! -d "$cache/debian" ]; then
    if ! command -v debootstrap >/dev/null; then
      apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends debootstrap >/dev/null || exit 75
    fi
    say 'making a Debian of its own (once)'
    rm -rf "$cache/debian.part"
    debootstrap --variant=minbase --include=python3-venv bookworm "$cache/debian.part" >"$cache/debootstrap.log" || { tail "$cache/debootstrap.log" >&2; exit 75; }
    mv "$cache/debian.part" "$cache/debian"
  fi
  say 'fetching what the wheel needs'
  python=$(chroot "$cache/debian" python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  "$base" -m pip download --quiet --disable-pip-version-check --only-binary :all: --python-version "$python" --dest "$cache/wheels" numpy pyarrow
  root=$work/root
  cp -a "$cache/debian" "$root"
  home=$root/home/user
  mkdir -p "$home/dist" "$root/wheels"
  cp "$wheel" "$home/dist"
  cp "$cache"/wheels/* "$root/wheels"
  # Debian's pip only installs into an environment, which is created before the clock
  # starts.
  chroot "$root" python3 -m venv /home/user/env
  steps "$commands" > "$home/steps"
  chown -R 1000:1000 "$home"
  began=$(date +%s%N)
  # Own namespaces: no network except the loopback, and no other processes.
  unshare --mount --net --pid --fork sh -c "
    ip link set lo up && mount -t proc proc '$root/proc' && cd '$home' &&
    exec chroot --userspec=1000:1000 '$root' env -i HOME=/home/user PATH=/home/user/env/bin:/usr/bin:/bin PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheels PIP_DISABLE_PIP_VERSION_CHECK=1 \
      sh -c 'cd /home/user && exec sh steps'"
fi
took=$((($(date +%s%N) - began) / 1000000))
say "from the wheel to the first verified row: $((took / 1000)).$(printf %03d $((took % 1000))) s"
