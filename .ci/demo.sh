#!/usr/bin/env bash
# The demo: a simulated server that replays exchanges recorded from a real one and
# plays some scripted agents; a collection from it; its verification; one row.
# The run's folder, run/demo, stays.
set -euo pipefail
cd "$(dirname "$0")/.."
rollout=$PWD/bin/rollout
dir=run
rm -rf "$dir/demo" "$dir/demo-tasks.jsonl" "$dir/demo-ready"
mkdir -p "$dir"

show() { printf '\n$ %s\n' "$*" >&2; }

show rollout simulate --exchanges testdata/letta --input-ids --scripted 40
"$rollout" simulate --listen 127.0.0.1:0 --exchanges testdata/letta --input-ids --scripted 40 \
  --write-tasks "$dir/demo-tasks.jsonl" --ready-file "$dir/demo-ready" 2>"$dir/demo-server.log" &
server=$!
trap 'kill "$server" 2>/dev/null; wait "$server" 2>/dev/null || true' EXIT
for _ in $(seq 100); do
  [ -s "$dir/demo-ready" ] && break
  kill -0 "$server" 2>/dev/null || { cat "$dir/demo-server.log" >&2; exit 1; }
  sleep 0.1
done
url=$(cat "$dir/demo-ready")

show rollout collect -c configs/demo.yaml --server "$url" --tasks "$dir/demo-tasks.jsonl" --out "$dir/demo"
# Some recorded exchanges end in an error on purpose: 3 means "finished, with failed
# samples within the tolerance".
"$rollout" collect -c configs/demo.yaml --server "$url" --tasks "$dir/demo-tasks.jsonl" --out "$dir/demo" || [ $? = 3 ]

show rollout verify "$dir/demo"
"$rollout" verify "$dir/demo"

show rollout inspect "$dir/demo" --limit 12
"$rollout" inspect "$dir/demo" --limit 12

show rollout inspect "$dir/demo" --row 0
"$rollout" inspect "$dir/demo" --row 0
printf '\nThe run is in %s: data/ holds the shards, failures/ what failed and why.\n' "$dir/demo" >&2
