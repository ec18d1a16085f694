#!/usr/bin/env bash
# Builds the container image twice with .ci/image.py, compares the results, and keeps one of them in
# FILE. Then crane reads the image: it pushes the image to a registry on this machine, validates it
# there, and unpacks it. Each platform must have at most 30 MB and another user than root. If this
# script runs as root, the user of the image runs the program in the unpacked image, which is read-only.
# usage: .ci/image.sh FILE
# Exit status 75: the packages are not available here. This is not an error of the code.
set -euo pipefail
cd "$(dirname "$0")/.."
crane=v0.22.1
say() { echo "image: $*" >&2; }
die() { say "$*"; exit 1; }

work=$(mktemp -d)
. .ci/servers.sh
.ci/image.py "$work/image.tar"
(umask 077 && TZ=Asia/Tokyo .ci/image.py "$work/again.tar" 2>/dev/null)
cmp "$work/image.tar" "$work/again.tar" || die 'a second build gives other bytes'
mkdir -p "$(dirname "$1")" "$work/layout" "$work/root"
mv "$work/image.tar" "$1"

GOBIN=$work GOFLAGS=-trimpath CGO_ENABLED=0 ${GO:-go} install "github.com/google/go-containerregistry/cmd/crane@$crane" ||
  { say "$1 was NOT CHECKED: crane is not available here"; exit 75; }
PATH=$work:$PATH
port=$(free)
start registry crane registry serve --address "127.0.0.1:$port"
image=127.0.0.1:$port/rollout
tar -xf "$1" -C "$work/layout"
crane push "$work/layout" "$image" > "$work/push.log" 2>&1 || die "crane cannot push the image: $(cat "$work/push.log")"
crane validate --remote "$image" >&2
for platform in linux/amd64 linux/arm64; do
  crane manifest --platform "$platform" "$image" > "$work/manifest"
  crane config --platform "$platform" "$image" > "$work/config"
  user=$(python3 - "$work" "$platform" <<'PYTHON'
import json, pathlib, re, sys
work, platform = pathlib.Path(sys.argv[1]), sys.argv[2]
size = sum(layer["size"] for layer in json.loads((work / "manifest").read_text())["layers"])
config = json.loads((work / "config").read_text())
assert f"{config['os']}/{config['architecture']}" == platform, config
assert size <= 30e6, f"{platform}: {size / 1e6:.1f} MB, allowed: 30 MB"
user = config["config"].get("User", "")
# Kubernetes can check only a number (runAsNonRoot).
assert re.fullmatch("[1-9][0-9]*:[1-9][0-9]*", user), f"{platform}: the user is {user!r}"
print(user)
PYTHON
  )
done
if [ "$(id -u)" = 0 ] && unshare --mount --net --pid --fork true 2>/dev/null; then
  crane export --platform "linux/$(${GO:-go} env GOHOSTARCH)" "$image" - | tar -xf - -C "$work/root"
  # shellcheck disable=SC2016 # the inner shell expands
  unshare --mount --net --pid --fork sh -c '
    mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && exec chroot --userspec="$2" "$1" /usr/bin/rollout version' sh "$work/root" "$user" >&2
else
  say "the program of $1 was NOT RUN: it needs root"
fi
say "$1 holds the image"
