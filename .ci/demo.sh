#!/usr/bin/env bash
# The demo: a simulated server replays exchanges recorded from a real one and plays some
# scripted agents. The demo collects from it, verifies the run and shows one row. Then a
# server that does not return prompts, like today's servers: prompts are rebuilt with the
# model's own tokenizer and chat template, and checked against the server's counts. Last, a
# collection that is killed and resumed. The folders of the runs, run/demo, run/demo-rebuilt
# and run/demo-killed, stay.
set -euo pipefail
cd "$(dirname "$0")/.."
rollout=$PWD/bin/rollout
dir=run
model=testdata/tokenizers/qwen3
rm -rf "$dir"/demo "$dir"/demo-*
mkdir -p "$dir"

show() { printf '\n$ %s\n' "$*" >&2; }

# simulate NAME FLAG… starts a server and sets url to its address.
simulate() {
  local name=$1
  shift
  show rollout simulate "$@"
  "$rollout" simulate --listen 127.0.0.1:0 "$@" \
    --write-tasks "$dir/demo-$name-tasks.jsonl" --ready-file "$dir/demo-$name-ready" 2>"$dir/demo-$name-server.log" &
  local server=$!
  servers+=("$server")
  for _ in $(seq 100); do
    [ -s "$dir/demo-$name-ready" ] && break
    kill -0 "$server" 2>/dev/null || { cat "$dir/demo-$name-server.log" >&2; exit 1; }
    sleep 0.1
  done
  url=$(cat "$dir/demo-$name-ready")
}
servers=()
trap 'kill "${servers[@]}" 2>/dev/null; wait 2>/dev/null || true' EXIT

simulate ids --exchanges testdata/letta --input-ids --scripted 40

show rollout collect -c configs/demo.yaml --server "$url" --tasks "$dir/demo-ids-tasks.jsonl" --out "$dir/demo"
# Some recorded exchanges end in an error on purpose: 3 means "finished, with failed samples
# within the tolerance".
"$rollout" collect -c configs/demo.yaml --server "$url" --tasks "$dir/demo-ids-tasks.jsonl" --out "$dir/demo" || [ $? = 3 ]

show rollout verify "$dir/demo"
"$rollout" verify "$dir/demo"

show rollout inspect "$dir/demo" --limit 12
"$rollout" inspect "$dir/demo" --limit 12

# Three calls with two tools between them, as text.
show rollout inspect "$dir/demo" --task tool-two --row 0 --tokenizer "$model"
"$rollout" inspect "$dir/demo" --task tool-two --row 0 --tokenizer "$model"

simulate rebuilt --exchanges testdata/letta

show rollout doctor --server "$url" --model sglang//models/qwen3 --tokenizer "$model" --tasks "$dir/demo-rebuilt-tasks.jsonl" --task tool-two
"$rollout" doctor --server "$url" --model sglang//models/qwen3 --tokenizer "$model" --tasks "$dir/demo-rebuilt-tasks.jsonl" --task tool-two

show rollout collect -c configs/demo.yaml --reward none --prompts auto --tokenizer "$model" --require count_verified --server "$url" --tasks "$dir/demo-rebuilt-tasks.jsonl" --out "$dir/demo-rebuilt"
"$rollout" collect -c configs/demo.yaml --reward none --prompts auto --tokenizer "$model" --require count_verified \
  --server "$url" --tasks "$dir/demo-rebuilt-tasks.jsonl" --out "$dir/demo-rebuilt" || [ $? = 3 ]

simulate killed --input-ids --scripted 60 --latency 300ms..900ms

show rollout collect --server "$url" --model sglang//models/qwen3 --tasks "$dir/demo-killed-tasks.jsonl" --samples 4 --out "$dir/demo-killed" '& sleep 3; kill -9 $!'
"$rollout" collect --server "$url" --model sglang//models/qwen3 --tasks "$dir/demo-killed-tasks.jsonl" --samples 4 --out "$dir/demo-killed" &
collecting=$!
sleep 3
kill -9 "$collecting"
wait "$collecting" 2>/dev/null || true

show rollout collect --resume --out "$dir/demo-killed"
"$rollout" collect --resume --out "$dir/demo-killed"

show rollout verify "$dir/demo-killed"
"$rollout" verify "$dir/demo-killed"

printf '\nThe runs are in %s, %s and %s: data/ holds the shards, failures/ what failed and why, report.html the run as a page.\n' "$dir/demo" "$dir/demo-rebuilt" "$dir/demo-killed" >&2
