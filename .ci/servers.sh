# Functions for the scripts that start servers on this machine. The script sets work, a folder for the
# logs of the servers, and port, the port of the next server. At its exit, the servers are stopped and the folder is removed.
# shellcheck shell=bash disable=SC2154 # work and port

stop() {
  # shellcheck disable=SC2046 # a list
  kill $(jobs -p) 2>/dev/null || true
  wait
  rm -rf "$work"
}
trap stop EXIT

# start NAME COMMAND… starts a server and waits until its port, $port, is open.
start() {
  local name=$1
  shift
  "$@" > "$work/$name.log" 2>&1 &
  await "$name" opened
}
opened() { (: < "/dev/tcp/127.0.0.1/$port"); }

# await NAME COMMAND… waits until the command succeeds. It fails if the process that was started last
# ends, or after a minute.
await() {
  local name=$1
  shift
  for _ in $(seq 600); do
    ! "$@" >/dev/null 2>&1 || return 0
    kill -0 $! 2>/dev/null || break
    sleep 0.1
  done
  echo "$0: $name: gave up waiting for: $*" >&2
  tail -20 "$work/$name.log" >&2
  exit 1
}

# free prints the number of a free port.
free() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
