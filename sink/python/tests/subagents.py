"""An agent harness with a subagent, for test_harness.py: it delegates, and asks for a title first.

usage: subagents.py PROMPT

The model is at OPENAI_BASE_URL, as for an OpenAI client.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from pathlib import Path
from typing import Any


def tool(name: str, argument: str) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]}
    return {"type": "function", "function": {"name": name, "description": "", "parameters": parameters}}


BASH, TASK = tool("bash", "command"), tool("task", "prompt")


def ask(messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> dict[str, Any]:
    body = {"model": "policy", "messages": messages, **({"tools": tools} if tools else {})}
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"}
    request = urllib.request.Request(f"{os.environ['OPENAI_BASE_URL']}/chat/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return dict(json.load(answer)["choices"][0]["message"])


def converse(prompt: str, *tools: dict[str, Any]) -> str:
    messages: list[dict[str, Any]] = [{"role": "system", "content": f"You have {len(tools)} tools."}, {"role": "user", "content": prompt}]
    while True:
        answer = ask(messages, list(tools))
        messages.append(answer)
        for call in answer.get("tool_calls") or []:
            function = call["function"]
            result = converse(json.loads(function["arguments"])["prompt"], BASH) if function["name"] == "task" else "done"
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
        if not answer.get("tool_calls"):
            return str(answer["content"])


if __name__ == "__main__":
    assert not any(name.startswith("COLLECT_SECRET") for name in os.environ)
    ask([{"role": "system", "content": "Write a title."}, {"role": "user", "content": sys.argv[1]}], [])
    if Path("given.txt").exists():
        Path("result.txt").write_text(f"{Path('given.txt').read_text()} {os.environ['SERVICE_TOKEN'][-3:]}")
    print(converse(sys.argv[1], BASH, TASK))
