#!/bin/sh
# Runs the sessions of a task, one after another, with the agent in the folder letta. Each session is a
# new conversation. The variables SESSION_1, SESSION_2 and so on contain the messages of the first
# sessions, and the standard input contains the message of the last one.
set -eu
agent=$(ls letta/memfs) n=1 status=0
while message=$(printenv "SESSION_$n"); do
  set -- "$@" "$message"
  unset "SESSION_$n" # no session sees the messages of the others in its environment
  n=$((n + 1))
done
session() { letta -p --backend local --agent "$agent" --new --yolo; }
# The last session runs even if an earlier one fails, for example at the token limit.
for message; do
  printf '%s\n' "$message" | session || status=$?
done
session || status=$?
exit "$status"
