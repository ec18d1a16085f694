"""Renders chat templates with apply_chat_template of the installed transformers.

Reads JSON lines. The first is an object of templates by name. Each further line is {"name": of
a template, or "src": a template itself, "messages": [...]} and other arguments of
apply_chat_template: "tools", "documents", "add_generation_prompt", "continue_final_message" (a
key of the final message, or ""), "vars": {...}. If "enum" is true, the roles are members of a
class of str and Enum, like Letta's. The answer is a line {"out": text} or {"err": what was
raised}.

Usage: python apply_chat_template.py < requests > answers
"""

import datetime
import enum
import json
import os
import sys

os.environ["TRANSFORMERS_VERBOSITY"] = "error"

from transformers.tokenization_utils_base import PreTrainedTokenizerBase  # noqa: E402
from transformers.utils import chat_template_utils  # noqa: E402


class MessageRole(str, enum.Enum):
    assistant = "assistant"
    user = "user"
    tool = "tool"
    function = "function"
    system = "system"
    approval = "approval"
    summary = "summary"


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return datetime.datetime(2026, 7, 4, 12, 30, 0)


chat_template_utils.datetime = Clock


class Tokenizer:
    """The members of a tokenizer that apply_chat_template uses to return text."""

    special_tokens_map = {
        "bos_token": "<s_bos>",
        "eos_token": "<s_eos>",
        "unk_token": "<unk>",
        "pad_token": "<pad>",
    }

    def get_chat_template(self, chat_template=None, tools=None):
        return chat_template


def render(sources, request):
    messages = request["messages"]
    if request.get("enum"):
        for m in messages:
            if m.get("role") in MessageRole.__members__:
                m["role"] = MessageRole(m["role"])
    text = PreTrainedTokenizerBase.apply_chat_template(
        Tokenizer(),
        messages,
        tools=request.get("tools"),
        documents=request.get("documents"),
        chat_template=sources[request["name"]] if request.get("name") else request["src"],
        add_generation_prompt=request.get("add_generation_prompt", False),
        continue_final_message=request.get("continue_final_message") or False,
        tokenize=False,
        return_dict=False,
        **request.get("vars", {}),
    )
    if not isinstance(text, str):
        raise TypeError("a batch of conversations")
    return text


def main():
    sys.stdin.reconfigure(encoding="utf-8", newline="\n")
    lines = iter(sys.stdin)
    sources = json.loads(next(lines))
    for line in lines:
        try:
            answer = {"out": render(sources, json.loads(line))}
        except Exception as e:  # whatever it is, an engine must refuse too
            answer = {"err": (type(e).__name__ + ": " + str(e))[:120]}
        sys.stdout.write(json.dumps(answer) + "\n")


main()
