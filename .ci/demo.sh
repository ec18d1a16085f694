#!/usr/bin/env bash
# Runs the demo. A simulated server plays scripted agents. The demo collects eight samples of
# every task, with rewards, and shows a group, a row as text and the report. Then it kills a
# collector with kill -9 and resumes the run. It keeps the run folders, run/demo and
# run/demo-killed.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$PWD/bin/rollout
dir=run
tokenizer=simulated
tasks=$dir/demo-tasks.jsonl
rm -rf "$dir"/demo "$dir"/demo-*
mkdir -p "$dir"

say() { printf '\n# %s\n' "$*"; }
show() { printf '$ %s\n' "$*"; }
# rollout prints a command line of the program and runs it.
rollout() {
  show rollout "$@"
  "$bin" "$@"
}

say 'A simulated Letta server with 24 tasks. Its agents call tools, and two answers in five are wrong.'
show rollout simulate --input-ids --scripted 24 --wrong 0.4 --latency 300ms..900ms --write-tasks "$tasks" '&'
"$bin" simulate --listen 127.0.0.1:0 --input-ids --scripted 24 --wrong 0.4 --latency 300ms..900ms \
  --write-tasks "$tasks" --ready-file "$dir/demo-ready" >"$dir/demo-server.log" 2>&1 &
server=$!
trap 'kill "$server" 2>/dev/null; wait 2>/dev/null || true' EXIT
for _ in $(seq 100); do
  [ -s "$dir/demo-ready" ] && break
  kill -0 "$server" 2>/dev/null || { cat "$dir/demo-server.log" >&2; exit 1; }
  sleep 0.1
done
url=$(cat "$dir/demo-ready")
show head -3 "$tasks"
head -3 "$tasks"

say 'Collect eight samples of every task. The reward is 1 if the last number of the answer is right.'
rollout collect --server "$url" --model sglang//models/qwen3 --tokenizer "$tokenizer" --tasks "$tasks" --samples 8 --reward number --out "$dir/demo"

say 'One group: eight samples of one task, with their rewards.'
rollout inspect "$dir/demo" --task scripted-0001

say 'One row as text: the prompt, a tool call, the result of the tool, the answer. Only the sampled tokens are trained.'
rollout inspect "$dir/demo" --task scripted-0001 --row 0

say 'The report: pass@k, and how many groups teach nothing because their rewards are equal.'
rollout report "$dir/demo"

say 'Kill a collector in the middle of a run. Nothing is lost.'
collect=(collect --server "$url" --model sglang//models/qwen3 --tasks "$tasks" --samples 8 --reward number --out "$dir/demo-killed")
show rollout "${collect[@]}" '& sleep 3; kill -9 $!'
"$bin" "${collect[@]}" &
collector=$!
sleep 3
kill -9 "$collector"
wait "$collector" 2>/dev/null || true

say 'Resume it: what was finished is kept, what was in flight is continued, and each sample is there once.'
rollout collect --resume --out "$dir/demo-killed"
rollout verify "$dir/demo-killed"

say "The runs are $dir/demo and $dir/demo-killed: data/ has the rows as Parquet, report.html is the report as a page."
