#!/usr/bin/env bash
# Builds the page of rollout view and report.html again, compares it with the committed files, and
# tests it in Chromium. With UPDATE=1, it replaces the committed files instead of comparing them,
# and takes the pictures of the README again. SCREENSHOTS is a folder for pictures of all pages.
# Node.js comes from .ci/harnesses.sh, Chromium from Debian, and the libraries from npm.
# Exit status 75: a package cannot be had. This is not an error of the code.
set -euo pipefail
cd "$(dirname "$0")/.."
say() { echo "page: $*" >&2; }
cannot() {
  say "NOT CHECKED: $*"
  exit 75
}
. .ci/unavailable.sh

.ci/harnesses.sh node || { [ $? = 75 ] && cannot 'Node.js cannot be had'; exit 1; }
PATH=$(pwd)/.build/harness/bin:$PATH
node=.build/harness/node/nodejs
web=cmd/rollout/internal/view/web
mkdir -p .build/page
home=$(cd .build/page && pwd -P)

# Install the libraries outside of the sources. The lock file has their hashes.
want=$(cat .ci/page.sh "$web/package.json" "$web/package-lock.json" | sha256sum | cut -d' ' -f1)
if [ "$(cat "$home/.made-from" 2>/dev/null)" != "$want" ]; then
  rm -rf "$home"
  mkdir -p "$home"
  cp "$web/package.json" "$web/package-lock.json" "$home/"
  if ! node "$node/lib/node_modules/npm/bin/npm-cli.js" install --prefix "$home" --ignore-scripts --prefer-offline --no-audit --no-fund \
    --loglevel error >"$home/npm.log" 2>&1; then
    tail -20 "$home/npm.log" >&2
    ! unavailable "$home/npm.log" || cannot 'the packages of npm cannot be had: see above'
    say 'FAILED: the packages of npm cannot be installed: see above'
    exit 1
  fi
  cmp -s "$web/package-lock.json" "$home/package-lock.json" || { say "FAILED: npm resolved other packages than $web/package-lock.json lists"; exit 1; }
  echo "$want" >"$home/.made-from"
fi
[ -L "$web/node_modules" ] || [ ! -e "$web/node_modules" ] || { say "$web/node_modules is a folder: remove it"; exit 1; }
ln -sfn "$home/node_modules" "$web/node_modules"

if [ -n "${UPDATE:-}" ]; then
  node "$web/build.mjs"
else
  built=$(mktemp -d)
  trap 'rm -rf "$built"' EXIT
  node "$web/build.mjs" "$built"
  diff -rq "$web/dist" "$built" || { say "FAILED: $web/dist is not what the sources give: UPDATE=1 .ci/page.sh"; exit 1; }
fi

browser=$(command -v chromium || true)
if [ -z "$browser" ]; then
  [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || cannot 'there is no chromium, and only root on Debian can install it'
  { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends chromium; } >"$home/apt.log" 2>&1 ||
    { tail -5 "$home/apt.log" >&2; cannot 'chromium cannot be installed: see above'; }
  browser=$(command -v chromium)
fi
ROLLOUT_BROWSER=$browser .ci/test.sh -timeout 15m -count 1 -run '^TestBrowser$' ./cmd/rollout/internal/view
