"""A stand-in for mini-swe-agent, for machines without it: it runs the commands that the model asks for."""

import argparse
import json
import os
import subprocess

from openai import OpenAI

SUBMIT = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
TOOL = {
    "type": "function",
    "function": {
        "name": "bash",
        "description": "Run a command.",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
    },
}

parser = argparse.ArgumentParser()
for name in ("-m", "-t", "-o", "-l"):
    parser.add_argument(name)
parser.add_argument("-y", action="store_true")
parser.add_argument("--exit-immediately", action="store_true")
options = parser.parse_args()

client = OpenAI(base_url=os.environ["OPENAI_API_BASE"], api_key=os.environ["OPENAI_API_KEY"])
messages = [
    {"role": "system", "content": "You use a computer."},
    {"role": "user", "content": f"{options.t}\n\nTo end, run: echo {SUBMIT} && echo YOUR_ANSWER"},
]
submission = None
while submission is None:
    message = client.chat.completions.create(model=options.m.partition("/")[2], messages=messages, tools=[TOOL]).choices[0].message
    calls = [{"id": c.id, "type": "function", "function": vars(c.function)} for c in message.tool_calls]
    messages.append({"role": "assistant", "content": message.content, "tool_calls": calls})
    for call in calls:
        command = json.loads(call["function"]["arguments"])["command"]
        done = subprocess.run(command, shell=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.stdout.startswith(SUBMIT):
            submission = done.stdout.removeprefix(SUBMIT).strip()
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": done.stdout})
with open(options.o, "w") as f:
    json.dump({"info": {"submission": submission}}, f)
