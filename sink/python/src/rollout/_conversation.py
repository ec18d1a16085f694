"""The messages of a row, decoded from its tokens. They are the same as in the program; see
cmd/rollout/internal/decode. Its testdata/conversations.json is a test of both."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rollout._calls import SPACE, SYNTAXES, Call, bare_call, json_object
from rollout._forms import ASSISTANT, FORMS, HARMONY, NAMES, SYNTAX, SYSTEM, TOOL, UNKNOWN, USER, Form, Mark

_THINKING = (
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|channel>thought", "<channel|>"),
)
_TOOL_RESPONSE = re.compile(r"<tool_response>(.*?)</tool_response>", re.DOTALL)
_MISTRAL_RESULT = re.compile(r'(?:[ \t\n\f\r]*\{"content": (.*), "call_id": "[^"]*"\}|[0-9A-Za-z]*\[TOOL_CONTENT\](.*))\Z', re.DOTALL | re.ASCII)
_COMMAND_RESULT = re.compile(r"<\|START_TOOL_RESULT\|>(.*)<\|END_TOOL_RESULT\|>\Z", re.DOTALL)
_KIMI_RESULT = re.compile(r"## Return of [^\n]*\n")
_RECIPIENT = re.compile(r"\bto=(?:functions\.)?([^ \t\n\f\r<]+)", re.ASCII)
_HARMONY_END = re.compile(r"<\|(?:end|return|call)\|>[ \t\n\f\r]*\Z", re.ASCII)


@dataclass
class Message:
    """One message of a conversation."""

    role: str
    span: int = -1
    """The span that the policy sampled for the message, or -1."""
    content: str = ""
    reasoning: str = ""
    calls: list[tuple[str, Call]] = field(default_factory=list)
    call_id: str = ""

    def as_dict(self) -> dict[str, Any]:
        out: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.reasoning:
            out["reasoning_content"] = self.reasoning
        if self.call_id:
            out["tool_call_id"] = self.call_id
        if self.calls:
            out["tool_calls"] = [{"id": key, "type": "function", "function": {"name": name, "arguments": arguments}} for key, (name, arguments) in self.calls]
        return out


class Decoder:
    """Decodes the rows of a model. The tokenizer is one of the package tokenizers or of transformers, or another object
    with a method decode. Without a method token_to_id, the chat template is not known."""

    def __init__(self, tokenizer: Any) -> None:
        self._decode: Callable[..., str] = tokenizer.decode
        self._blank: dict[int, str] = {}
        find: Callable[[str], Any] = getattr(getattr(tokenizer, "backend_tokenizer", tokenizer), "token_to_id", lambda piece: None)
        self.form: Form | None = next((form for form in FORMS if all(find(piece) is not None for piece in form.needs)), None)
        self.marks: dict[int, Mark] = {}
        self.heads: set[int] = set()
        for piece, mark in self.form.marks.items() if self.form else ():
            if (token := find(piece)) is not None:
                self.marks[token] = mark
            if (head := find(mark.head)) is not None and mark.head != "\n":
                self.heads.add(head)
        pieces = (*SYNTAX, *(HARMONY if self.form and self.form.harmony else ()))
        ids = {find(piece): piece for piece in pieces}
        self._kept = {token: piece for token, piece in ids.items() if token is not None and not self.plain([token])}

    def plain(self, ids: Sequence[int]) -> str:
        """Return the text of tokens without special tokens."""
        return str(self._decode(list(ids), skip_special_tokens=True)) if ids else ""

    def text(self, ids: Sequence[int]) -> str:
        """Return the text of tokens, with the special tokens that stay in a message."""
        parts, begin = [], 0
        for i, token in enumerate(ids):
            if token in self._kept:
                parts += [self.plain(ids[begin:i]), self._kept[token]]
                begin = i + 1
        return "".join((*parts, self.plain(ids[begin:])))

    def one(self, token: int) -> str:
        if token not in self._blank:
            self._blank[token] = self.text([token])
        return self._blank[token]

    def messages(self, row: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the messages of a row; see Row.messages."""
        parser, ids = _Parser(self), row["input_ids"].tolist()
        offsets = row["turn_offsets"].tolist()
        for k, role in enumerate(row["turn_roles"].tolist()):
            parser.add(k, role, ids[offsets[k] : offsets[k + 1]])
        parser.close()
        return [message.as_dict() for message in _finish(self.form, parser.all)]


class _Parser:
    """Builds the messages of one row."""

    def __init__(self, decoder: Decoder) -> None:
        self._of = decoder
        self.all: list[Message] = []
        self._open: Message | None = None
        self._ids: list[int] = []
        self._head = False  # the name of a role is expected
        self._mark = Mark()
        self._role = 0

    def add(self, span: int, role: int, ids: list[int]) -> None:
        """Add a span. Sampled tokens begin no message, but a mark at their end ends the message."""
        self._role = role
        if role != 1:
            for token in ids:
                self._context(token)
            return
        self._end_head("")
        if self._open is None or self._open.role != ASSISTANT or self._open.span >= 0:
            self.close()
            self._open = Message(ASSISTANT)
        self._open.span = span
        self._ids += ids
        if ids and ids[-1] in self._of.marks and not self._of.marks[ids[-1]].head:
            self.close()

    def _context(self, token: int) -> None:
        of = self._of
        mark = of.marks.get(token)
        if mark is not None:
            self.close()
            if mark != Mark():
                self._open, self._head, self._mark = Message(mark.role), bool(mark.head), mark
        elif self._head and (token in of.heads or self._mark.head == "\n" and self._line_ends(token)):
            self._end_head("<|message|>")
        elif (self._open is None or self._open.span >= 0) and not of.one(token).strip(SPACE):
            pass  # the white space between two messages
        else:
            if self._open is not None and self._open.span >= 0:
                self.close()  # the template adds no text to an answer
            if self._open is None:
                self._open, self._mark = Message(self._outside()), Mark()
            self._ids.append(token)

    def _outside(self) -> str:
        """Return the role of text that no mark begins."""
        return {2: TOOL, 3: USER}.get(self._role, UNKNOWN)

    def _line_ends(self, token: int) -> bool:
        """Report whether a token in the name of a role contains a line break. The text after it belongs to the message."""
        text = self._of.plain([token])
        if "\n" in text and text != "\n":
            self._ids.append(token)  # _end_head cuts the name
        return "\n" in text

    def _end_head(self, mark: str) -> None:
        if not self._head or self._open is None:
            return
        head = self._of.text(self._ids)
        self._ids, self._head = [], False
        if self._of.form and self._of.form.harmony:
            self._open.role = self._named(_harmony_role(head))
            if self._open.role == ASSISTANT:
                self._open.content = head + mark  # see _harmony
            return
        name, _, self._open.content = head.partition("\n")
        self._open.role = self._named(name)

    def _named(self, name: str) -> str:
        return NAMES.get(name.strip(SPACE)) or self._mark.role or self._outside()

    def close(self) -> None:
        """End the open message."""
        self._end_head("")
        message, self._open = self._open, None
        if message is None:
            return
        message.content += self._of.text(self._ids)
        self._ids = []
        if not self._mark.maybe or message.span >= 0 or message.content.strip(SPACE):
            self.all.append(message)


def _finish(form: Form | None, found: list[Message]) -> list[Message]:
    """Split the text of the messages into reasoning, calls and results, and link results to calls."""
    out: list[Message] = []
    count = 0
    for message in found:
        if message.role == ASSISTANT:
            count = _split(message, form, count)
            if form and form.harmony and out and _continues(message, out[-1]):
                message.reasoning = out.pop().reasoning
            out.append(message)
        elif message.role == UNKNOWN:
            out.append(message)
        else:
            out += _results(message)
    for i, message in enumerate(out):
        results = out[i + 1 : next((k for k in range(i + 1, len(out)) if out[k].role != TOOL), len(out))]
        if len(results) == len(message.calls):
            for result, (key, _) in zip(results, message.calls):
                result.call_id = key
    return out


def _continues(message: Message, before: Message) -> bool:
    """Report whether the message before is the reasoning of this one: in a prompt, each channel is a message."""
    if before.role != ASSISTANT or before.span >= 0 or message.span >= 0:
        return False
    return not message.reasoning and bool(before.reasoning) and not before.content and not before.calls


def _add(message: Message, calls: list[Call], count: int) -> int:
    message.calls += [(f"call_{count + i}", call) for i, call in enumerate(calls, 1)]
    return count + len(calls)


def _split(message: Message, form: Form | None, count: int) -> int:
    """Move the reasoning and the calls out of the content. A call that cannot be parsed stays."""
    if form and form.harmony:
        return _harmony(message, count)
    text = message.content
    for begin, end in _THINKING:
        think, found, after = text.partition(end)
        if found:
            message.reasoning, text = think.strip(SPACE).removeprefix(begin).strip(SPACE), after
            break
        if text.strip(SPACE).startswith(begin):  # cut off
            message.reasoning, text = text.strip(SPACE).removeprefix(begin).strip(SPACE), ""
            break
    for pattern, parse in SYNTAXES:
        parts, at = [], 0
        for match in pattern.finditer(text):
            if calls := parse(match[1]):
                count = _add(message, calls, count)
                parts.append(text[at : match.start()])
                at = match.end()
        text = "".join((*parts, text[at:]))
    if form and form.bare_calls and not message.calls and (calls := bare_call(text)):
        count, text = _add(message, calls, count), ""
    message.content = text.strip(SPACE)
    return count


def _results(message: Message) -> list[Message]:
    """Split a message that contains only results of tools into one message per result."""
    message.content = message.content.lstrip("\n")
    if (kimi := _KIMI_RESULT.match(message.content)) and message.role != USER:
        message.role, message.content = TOOL, message.content[kimi.end() :]
    if message.role == SYSTEM and (found := _COMMAND_RESULT.match(message.content)):
        message.role, message.content = TOOL, found[1]
    if message.role == TOOL and (found := _MISTRAL_RESULT.match(message.content)):
        message.content = (found[1] or "") + (found[2] or "")
    parts = _TOOL_RESPONSE.findall(message.content)
    if message.role == SYSTEM or not parts or _TOOL_RESPONSE.sub("", message.content).strip(SPACE):
        return [message]
    return [Message(TOOL, content=part.strip("\n")) for part in parts]


def _harmony_role(head: str) -> str:
    """Return the name of the role in a header. The result of a tool has the header
    "functions.add to=assistant<|channel|>commentary"."""
    if "to=assistant" in head:
        return TOOL
    return head.partition("<|channel|>")[0].strip(SPACE).partition(" ")[0]


def _harmony(message: Message, count: int) -> int:
    """Split an answer of gpt-oss. It consists of messages with a header each: the analysis is reasoning, and a message to
    a function is a call. Text without a header is content."""
    content, reasoning = [], []
    for part in message.content.split("<|start|>"):
        header, mark, body = part.partition("<|message|>")
        if not mark:
            header, body = "", part.removeprefix(ASSISTANT)
            if "<|channel|>" in part and not _HARMONY_END.search(part):
                continue  # a header that is cut off
        body = _HARMONY_END.sub("", body).strip(SPACE)
        to, arguments = _RECIPIENT.search(header), json_object(body)
        if to and body and arguments is not None:
            count = _add(message, [(to[1], arguments)], count)
        elif not to and "<|channel|>analysis" in header:
            reasoning.append(body)
        elif body:
            content.append(body)
    message.content, message.reasoning = "\n".join(content), "\n".join(reasoning)
    return count
