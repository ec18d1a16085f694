"""The marks with which chat templates begin and end messages. They are the same as in cmd/rollout/internal/decode/form.go."""

from __future__ import annotations

from typing import NamedTuple

SYSTEM, USER, ASSISTANT, TOOL = "system", "user", "assistant", "tool"
UNKNOWN = "unknown"
"""The role of text in a prompt that no mark begins, and of a prompt whose chat template is not known."""


class Mark(NamedTuple):
    """A token that begins or ends a message."""

    role: str = ""
    """The role of the message that begins. It is empty if the name of the role follows."""
    head: str = ""
    """Ends the name of the role: a token, or a line break. If role and head are empty, the mark ends a message."""
    maybe: bool = False
    """No message begins unless text follows."""


class Form(NamedTuple):
    """The way in which chat templates mark messages."""

    name: str
    needs: tuple[str, ...]
    """A tokenizer that has all these tokens has the form."""
    marks: dict[str, Mark]
    harmony: bool = False
    """The header of a message names a channel and a recipient."""
    bare_calls: bool = False
    """An answer that is only {"name": ..., "parameters": ...} is a call."""


# fmt: off
FORMS = (
    Form("Llama 3", ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"), {
        "<|start_header_id|>": Mark(head="<|end_header_id|>"), "<|eot_id|>": Mark(), "<|eom_id|>": Mark(),
    }, bare_calls=True),
    Form("Llama 4", ("<|header_start|>", "<|header_end|>", "<|eot|>"), {
        "<|header_start|>": Mark(head="<|header_end|>"), "<|eot|>": Mark(), "<|eom|>": Mark(),
    }, bare_calls=True),
    Form("Kimi K2", ("<|im_user|>", "<|im_middle|>"), {
        "<|im_user|>": Mark(USER, "<|im_middle|>"), "<|im_assistant|>": Mark(ASSISTANT, "<|im_middle|>"),
        "<|im_system|>": Mark(SYSTEM, "<|im_middle|>"), "<|im_end|>": Mark(),
    }),
    Form("ChatML", ("<|im_start|>", "<|im_end|>"), {"<|im_start|>": Mark(head="\n"), "<|im_end|>": Mark()}),
    Form("gpt-oss", ("<|start|>", "<|channel|>", "<|message|>"), {
        "<|start|>": Mark(head="<|message|>"), "<|end|>": Mark(), "<|return|>": Mark(), "<|call|>": Mark(),
    }, harmony=True),
    Form("GLM 4", ("<|user|>", "<|assistant|>", "<|observation|>"), {
        "<|system|>": Mark(SYSTEM), "<|user|>": Mark(USER), "<|assistant|>": Mark(ASSISTANT), "<|observation|>": Mark(TOOL),
    }),
    Form("Phi 3", ("<|user|>", "<|assistant|>", "<|end|>"), {
        "<|system|>": Mark(SYSTEM), "<|user|>": Mark(USER), "<|assistant|>": Mark(ASSISTANT), "<|end|>": Mark(),
    }),
    Form("DeepSeek V3", ("<｜User｜>", "<｜Assistant｜>"), {
        "<｜begin▁of▁sentence｜>": Mark(SYSTEM, maybe=True), "<｜User｜>": Mark(USER), "<｜Assistant｜>": Mark(ASSISTANT),
        "<｜tool▁output▁begin｜>": Mark(TOOL), "<｜tool▁output▁end｜>": Mark(ASSISTANT, maybe=True),
        "<｜tool▁outputs▁begin｜>": Mark(), "<｜tool▁outputs▁end｜>": Mark(ASSISTANT, maybe=True), "<｜end▁of▁sentence｜>": Mark(),
    }),
    Form("Mistral", ("[INST]", "[/INST]"), {
        "[INST]": Mark(USER), "[/INST]": Mark(ASSISTANT, maybe=True), "[SYSTEM_PROMPT]": Mark(SYSTEM), "[/SYSTEM_PROMPT]": Mark(),
        "[AVAILABLE_TOOLS]": Mark(SYSTEM), "[/AVAILABLE_TOOLS]": Mark(), "[MODEL_SETTINGS]": Mark(SYSTEM), "[/MODEL_SETTINGS]": Mark(),
        "[TOOL_RESULTS]": Mark(TOOL), "[/TOOL_RESULTS]": Mark(ASSISTANT, maybe=True), "<s>": Mark(), "</s>": Mark(),
    }),
    Form("Gemma 3", ("<start_of_turn>", "<end_of_turn>"), {"<start_of_turn>": Mark(head="\n"), "<end_of_turn>": Mark()}),
    Form("Gemma 4", ("<|turn>", "<turn|>"), {
        "<|turn>": Mark(head="\n"), "<turn|>": Mark(), "<|tool_response>": Mark(TOOL), "<tool_response|>": Mark(ASSISTANT, maybe=True),
    }),
    Form("Command R", ("<|START_OF_TURN_TOKEN|>", "<|END_OF_TURN_TOKEN|>"), {
        "<|SYSTEM_TOKEN|>": Mark(SYSTEM), "<|USER_TOKEN|>": Mark(USER), "<|CHATBOT_TOKEN|>": Mark(ASSISTANT), "<|END_OF_TURN_TOKEN|>": Mark(),
    }),
    Form("Granite 3", ("<|start_of_role|>", "<|end_of_role|>"), {"<|start_of_role|>": Mark(head="<|end_of_role|>"), "<|end_of_text|>": Mark()}),
    Form("Seed-OSS", ("<seed:bos>", "<seed:eos>"), {"<seed:bos>": Mark(head="\n"), "<seed:eos>": Mark()}),
)
# fmt: on
"""The first form that a tokenizer has is the form of its model."""

SYNTAX = (
    "<think>", "</think>", "[THINK]", "[/THINK]", "<seed:think>", "</seed:think>", "<|START_THINKING|>", "<|END_THINKING|>",
    "<|channel>", "<channel|>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<seed:tool_call>",
    "</seed:tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "<|python_tag|>", "<|python_start|>",
    "<|python_end|>", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "[TOOL_CONTENT]", "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>",
    "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>", "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>",
    "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>", "<|tool_call|>", "<|START_TOOL_RESULT|>",
    "<|END_TOOL_RESULT|>", "<|START_ACTION|>", "<|END_ACTION|>", "<|tool_call>", "<tool_call|>", '<|"|>', "<|tool_call_start|>",
    "<|tool_call_end|>",
)
"""Tokens that mean something inside a message. They stay in its text, also if they are special."""

HARMONY = ("<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>")
"""Like SYNTAX, for the harmony form."""

NAMES = {
    **dict.fromkeys(("system", "developer", "available_tools", "tool_declare"), SYSTEM),
    **dict.fromkeys(("assistant", "model"), ASSISTANT),
    **dict.fromkeys(("tool", "ipython", "observation", "function", "tool_response"), TOOL),
    "user": USER,
}
"""The roles by their names in templates and in APIs."""
