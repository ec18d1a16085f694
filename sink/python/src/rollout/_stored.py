"""The messages that a run stores with output.messages, as in cmd/rollout/internal/decode/stored.go."""

from __future__ import annotations

import json
from typing import Any

from rollout._calls import json_object, raw_elements, raw_members
from rollout._conversation import Message
from rollout._forms import ASSISTANT, NAMES, SYSTEM, TOOL, USER


def stored(text: str) -> list[dict[str, Any]] | None:
    """Return the messages of the column messages: of OpenAI's Chat Completions API, of Anthropic's
    Messages API or of Letta's API. None: they have an unknown form."""
    try:
        json.loads(text)  # raises unless the whole text is JSON
        found = _value(text.strip(" \t\n\r"))
        if not isinstance(found, list) or not found:
            return None
        out: list[Message] = []
        for message in found:
            _append(out, message)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return None
    return [message.as_dict() for message in out]


def _value(raw: str) -> Any:
    """Parse JSON. The arguments of a call stay JSON text, so that they are as the server wrote them."""
    if raw.startswith("["):
        return [_value(element) for element in raw_elements(raw)]
    if raw.startswith("{"):
        return {name: member if name in ("arguments", "input") else _value(member) for name, member in raw_members(raw).items()}
    return json.loads(raw)


def _append(out: list[Message], m: dict[str, Any]) -> None:
    if m.get("message_type"):
        _append_letta(out, m, m["message_type"])
    elif m.get("role"):
        content = _Content(m.get("content"))
        message = Message(NAMES[m["role"]], content=content.text, call_id=_string(m.get("tool_call_id")))
        message.reasoning = _string(m.get("reasoning_content")) or _string(m.get("reasoning")) or content.reasoning
        _add_calls(message, content.calls + _list(m.get("tool_calls")))
        if message.role != ASSISTANT and (message.reasoning or message.calls):
            raise ValueError("reasoning or calls that are not of an answer")
        out += content.results  # they come before the text of the message
        if not content.results or message.role != USER or message.content:
            out.append(message)
    elif m.get("type") in ("approval", "tool_return"):
        _append_returns(out, m)
    else:
        raise ValueError("a message without a role")


def _append_letta(out: list[Message], m: dict[str, Any], kind: str) -> None:
    """Append a message of Letta. The parts of one answer, such as its reasoning and its calls, are separate messages in
    Letta; they become one message."""
    calls = _list(m.get("tool_calls")) or _list(m.get("tool_call"))
    content = _Content(m.get("content")).text
    if kind in ("system_message", "user_message"):
        out.append(Message(SYSTEM if kind == "system_message" else USER, content=content))
    elif kind == "reasoning_message":
        out.append(Message(ASSISTANT, reasoning=_string(m.get("reasoning"))))
    elif kind in ("assistant_message", "tool_call_message", "approval_request_message"):
        last = out[-1] if out else None
        if last is None or last.role != ASSISTANT or last.calls or content and last.content:
            out.append(last := Message(ASSISTANT))
        last.content += content
        _add_calls(last, calls)
    elif kind == "tool_return_message" and not m.get("tool_returns"):
        out.append(Message(TOOL, content=_Content(m.get("tool_return")).text, call_id=_string(m.get("tool_call_id"))))
    elif kind in ("tool_return_message", "approval_response_message"):
        _append_returns(out, m)
    elif kind not in ("hidden_reasoning_message", "event_message"):  # without text
        raise ValueError(kind)


def _append_returns(out: list[Message], m: dict[str, Any]) -> None:
    """Append the results of tools. An approval is not a result."""
    for result in (*_list(m.get("tool_returns")), *_list(m.get("approvals"))):
        if call_id := _string(result.get("tool_call_id")):
            out.append(Message(TOOL, content=_Content(result.get("tool_return")).text, call_id=call_id))


def _add_calls(message: Message, calls: list[Any]) -> None:
    """Add the calls to the message. Arguments that are not an object stay as they are."""
    for call in calls:
        of = call.get("function") or call
        name, written = _string(of.get("name")), of.get("arguments", "")
        if not name:
            raise ValueError("a call without a name")
        plain = json_object(written)
        if plain is None:
            plain = json.loads(written) if written[0] == '"' else "" if written == "null" else written
        message.calls.append((_string(call.get("id")) + _string(call.get("tool_call_id")), (name, plain)))


def _string(value: Any) -> str:
    if value is not None and not isinstance(value, str):
        raise TypeError("not a string")
    return value or ""


class _Content:
    """A text, or a list of parts: texts, or blocks of Anthropic's API. Another part, such as an image, is not known."""

    def __init__(self, value: Any) -> None:
        self.text = self.reasoning = ""
        self.calls: list[dict[str, Any]] = []
        self.results: list[Message] = []
        if not isinstance(value, list):
            self.text = _string(value)
            return
        for part in value:
            kind = part.get("type")
            if part.get("text") is not None:
                self.text += part["text"]
            elif kind == "thinking":
                self.reasoning += _string(part.get("thinking"))
            elif kind == "tool_use":
                self.calls.append({"id": part.get("id"), "name": part.get("name"), "arguments": part.get("input", "")})
            elif kind == "tool_result":
                self.results.append(Message(TOOL, content=_text(part.get("content")), call_id=_string(part.get("tool_use_id"))))
            elif kind != "redacted_thinking":  # without text
                raise ValueError(kind)


def _text(value: Any) -> str:
    """Return a text, or the text of a list of parts."""
    content = _Content(value)
    if content.reasoning or content.calls or content.results:
        raise ValueError("not only text")
    return content.text


def _list(value: Any) -> list[Any]:
    """Return a list. A single object is a list with one element."""
    if isinstance(value, dict):
        return [value]
    if value is not None and not isinstance(value, list):
        raise TypeError("not a list")
    return value or []
