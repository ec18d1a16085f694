#!/bin/sh
# Creates a folder with a Letta Code agent whose memory is empty. Does not call a model.
#
# usage: sh create.sh FOLDER
set -eu
mkdir "$1"
cp sessions.sh "$1"
HOME=$(mktemp -d) # for Letta Code's settings
trap 'rm -r "$HOME"' EXIT
export HOME LETTA_LOCAL_BACKEND_DIR="$PWD/$1/letta" LETTA_CODE_TELEM=0 DISABLE_AUTOUPDATER=1 DO_NOT_TRACK=1
letta backend local >/dev/null
letta agents create --name Ada --model lmstudio/policy --personality blank >/dev/null
