# To be sourced by scripts that install packages, with pipefail.
# shellcheck shell=bash

# unavailable reports whether the output of pip or npm in the file LOG says that a registry cannot be reached or
# lacks a package. Any other failure is an error of the code: another hash, no such version, a full disk.
unavailable() { # LOG
  local pip='from versions: none\)|HTTP error [45]|(Connection|Timeout|Protocol|SSL)Error|IncompleteRead|Max retries exceeded|timed out'
  local npm='^npm error code (E40[1347]|E429|E5[0-9]{2}|ECONN[A-Z]+|ENOTFOUND|EAI_AGAIN|E(HOST|NET)UNREACH|[A-Z_]*TIMED?OUT|ENOTCACHED|[A-Z_]*CERT[A-Z_]*)$'
  # A warning is about a try that can have succeeded later. With -q, the first grep could get SIGPIPE.
  grep -v '^WARNING' "$1" | grep -E "$pip|$npm" >/dev/null
}
