#!/usr/bin/env bash
# Installs promtool, which a test uses to check configs/alerts.yml and the dashboard's
# expressions. If there is no apt-get, the script reports this, and the test is skipped.
set -euo pipefail
command -v promtool >/dev/null && exit 0
if ! command -v apt-get >/dev/null; then
  echo 'promtool: there is no apt-get to install it with; put it on PATH to have the alerts checked' >&2
  exit 0
fi
sudo=; [ "$(id -u)" = 0 ] || sudo=sudo
echo 'promtool: installing the system package prometheus' >&2
$sudo apt-get update -qq
DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends prometheus >/dev/null
