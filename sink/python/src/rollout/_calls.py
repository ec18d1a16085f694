"""The ways in which models write calls of tools, as in cmd/rollout/internal/decode/calls.go."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
"""The white space of Go's strings.TrimSpace."""

Call = tuple[str, str]
"""The name of the tool, and its arguments as a JSON object."""

_VALUE = json.JSONDecoder()
_BLANK = re.compile(r"[ \t\n\r]*")


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text, re.DOTALL | re.ASCII)


_GLM = _pattern(r"<arg_key>(.*?)</arg_key>[ \t\n\f\r]*<arg_value>(.*?)</arg_value>")
_FUNCTION = _pattern(r"<function=([^>\n]+)>(.*?)</function>")
_PARAMETER = _pattern(r"<parameter=([^>\n]+)>\n?(.*?)\n?</parameter>")
_MISTRAL = _pattern(r"([^\[\]{} \t\n\f\r]+)(?:\[CALL_ID\][^\[]*)?(?:\[ARGS\])?(\{.*\})\Z")
_DEEPSEEK = _pattern(r"<｜tool▁call▁begin｜>(.*?)<｜tool▁call▁end｜>")
_DEEPSEEK_V3 = _pattern("function<｜tool▁sep｜>([^\n]+)\n```json\n(.*)\n```\\Z")
_GEMMA = _pattern(r"call:([^{} \t\n\f\r]+)(\{.*\})\Z")
_GEMMA_KEY = _pattern(r"([{,][ \t\n\f\r]*)([^{}\[\],:\" \t\n\f\r]+):")
_DSML = _pattern(r'<｜DSML｜invoke name="([^"]+)">(.*?)</｜DSML｜invoke>')
_DSML_PARAMETER = _pattern(r'<｜DSML｜parameter name="([^"]+)" string="(true|false)">(.*?)</｜DSML｜parameter>')
_KIMI = _pattern(r"<\|tool_call_begin\|>[ \t\n\f\r]*(?:functions\.)?(.*?)(?::\d+)?[ \t\n\f\r]*<\|tool_call_argument_begin\|>(.*?)<\|tool_call_end\|>")


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("the same name twice")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(name)


def valid(text: str) -> bool:
    """Report whether a text is JSON that all parsers read in the same way."""
    try:
        value = json.loads(text, object_pairs_hook=_members, parse_constant=_no_constant, parse_int=str, parse_float=str)
        json.dumps(value, ensure_ascii=False).encode()  # not half of a surrogate pair
    except (ValueError, RecursionError):
        return False
    return not text.startswith("\ufeff")


def raw_members(text: str) -> dict[str, str]:
    """Return the members of a valid JSON object, each as its JSON text."""
    out, i = {}, _skip(text, _skip(text, 0) + 1)
    while text[i] == '"':
        name, i = scanstring(text, i + 1, True)
        begin = _skip(text, _skip(text, i) + 1)
        _, end = _VALUE.raw_decode(text, begin)
        out[name] = text[begin:end]
        i = _skip(text, end)
        if text[i] == ",":
            i = _skip(text, i + 1)
    return out


def raw_elements(text: str) -> list[str]:
    """Return the elements of a valid JSON array, each as its JSON text."""
    out, i = [], _skip(text, 1)
    while text[i] != "]":
        _, end = _VALUE.raw_decode(text, i)
        out.append(text[i:end])
        i = _skip(text, end)
        if text[i] == ",":
            i = _skip(text, i + 1)
    return out


def _skip(text: str, i: int) -> int:
    return _BLANK.match(text, i).end()  # type: ignore[union-attr]


def quoted(text: str) -> str:
    """Return a text as a JSON string, with the escapes of the program."""
    return json.dumps(text, ensure_ascii=False)


def json_object(raw: str) -> str | None:
    """Return a JSON object. The text can also be a JSON string that contains the object, or be empty."""
    text = raw.strip(SPACE)
    if text.startswith('"'):
        if not valid(text):
            return None
        text = str(json.loads(text)).strip(SPACE)
    if not text:
        return "{}"
    return text if text.startswith("{") and valid(text) else None


def parse_call(text: str) -> Call | None:
    """Parse a call such as {"name": "add", "arguments": {"a": 1}}. The members have other names in Llama and in Command R."""
    if not text.strip(SPACE).startswith("{") or not valid(text):
        return None
    members = raw_members(text)
    name = json.loads(next((members[key] for key in ("name", "tool_name") if key in members), "null"))
    arguments = json_object(next((members[key] for key in ("arguments", "parameters") if key in members), ""))
    return (name, arguments) if isinstance(name, str) and name and arguments is not None else None


def _named(name: str, raw: str) -> Call | None:
    """Return a call with a name and a JSON object, or None if one of them is not valid."""
    arguments = json_object(raw)
    return (name, arguments) if name and arguments is not None else None


def _all(calls: Iterable[Call | None]) -> list[Call]:
    """Return the calls, or no call if one of them is not valid."""
    found = list(calls)
    return [] if None in found else [call for call in found if call]


def _each(pattern: re.Pattern[str], text: str, parse: Callable[..., Call | None]) -> list[Call]:
    """Parse every match of the pattern. Return no call if a match is not valid, or if the text contains more than matches
    and white space."""
    return _all(parse(*match.groups()) for match in pattern.finditer(text)) if _covers(pattern, text) else []


def json_calls(text: str) -> list[Call]:
    """Parse an object, a list of objects, or objects with semicolons between them."""
    text = text.strip(SPACE)
    if text.startswith("["):
        return _all(map(parse_call, raw_elements(text))) if valid(text) else []
    return _all(map(parse_call, [text] if valid(text) else (part.strip(SPACE) for part in text.split(";"))))


def _covers(pattern: re.Pattern[str], text: str) -> bool:
    """Report whether matches of the pattern and white space are all of the text."""
    return not pattern.sub("", text).strip(SPACE)


def _one(name: str, pattern: re.Pattern[str], text: str) -> Call | None:
    """Return a call whose arguments are written as text. A value that is JSON, but not a JSON string, is that JSON value,
    as templates write it. Any other value is a string."""
    if not _covers(pattern, text):
        return None
    members = []
    for key, written in pattern.findall(text):
        value = written.strip(SPACE)
        plain = value.startswith('"') or not valid(value)
        members.append(f"{quoted(key.strip(SPACE))}: {quoted(written) if plain else value}")
    return _named(name, "{" + ", ".join(members) + "}")  # None: the same name twice


def _functions(text: str) -> list[Call]:
    """Parse <function=add><parameter=a>2</parameter></function>. The function can also contain a JSON object."""

    def parse(name: str, body: str) -> Call | None:
        name = name.strip(SPACE)
        return body.strip(SPACE) and _named(name, body) or _one(name, _PARAMETER, body)

    return _each(_FUNCTION, text, parse)


def _tagged(text: str) -> list[Call]:
    """Parse the text between <tool_call> and </tool_call>: JSON, functions, or the name and the arguments of GLM."""
    found = json_calls(text) or _functions(text)
    if found:
        return found
    name, mark, rest = text.partition("<arg_key>")
    name = name.strip(SPACE)
    return _all([_one(name, _GLM, mark + rest)]) if not set("{}<> \n") & set(name) else []


def _mistral(text: str) -> list[Call]:
    """Parse a list, or add{"a": 1} and add[ARGS]{"a": 1} with [TOOL_CALLS] between the calls."""
    found = json_calls(text)
    if found:
        return found
    matches = [_MISTRAL.match(part.strip(SPACE)) for part in text.split("[TOOL_CALLS]")]
    return _all(match and _named(match[1], match[2]) for match in matches)


def _deepseek(text: str) -> list[Call]:
    """Parse the calls of DeepSeek V3 and R1, with a code block, and of V3.1, without it."""

    def parse(body: str) -> Call | None:
        if old := _DEEPSEEK_V3.match(body.strip(SPACE)):
            return _named(old[1].strip(SPACE), old[2])
        name, mark, raw = body.partition("<｜tool▁sep｜>")
        return _named(name.strip(SPACE), raw) if mark else None

    return _each(_DEEPSEEK, text, parse)


def _kimi(text: str) -> list[Call]:
    """Parse the calls of Kimi K2: functions.add:0 is the first call, of the tool add."""
    return _each(_KIMI, text, _named)


def _gemma(text: str) -> list[Call]:
    """Parse the call of Gemma 4: call:add{a:1,b:<|"|>x<|"|>}."""
    match = _GEMMA.match(text.strip(SPACE))
    if not match:
        return []
    parts = match[2].split('<|"|>')
    raw = "".join(quoted(part) if i % 2 else _GEMMA_KEY.sub(r'\1"\2":', part) for i, part in enumerate(parts))
    return _all([_named(match[1], raw)])


def _dsml(text: str) -> list[Call]:
    """Parse the calls of DeepSeek V3.2. They say whether a value is a string or JSON."""

    def parse(name: str, body: str) -> Call | None:
        members = [f"{quoted(key)}: {quoted(value) if string == 'true' else value}" for key, string, value in _DSML_PARAMETER.findall(body)]
        return _named(name, "{" + ", ".join(members) + "}") if _covers(_DSML_PARAMETER, body) else None

    return _each(_DSML, text, parse)


def bare_call(text: str) -> list[Call]:
    """Parse an answer that is only a call such as {"name": "add", "parameters": {"a": 1}}."""
    text = text.strip(SPACE)
    if not text.startswith("{") or not valid(text):
        return []
    members = raw_members(text)
    if members.get("type") == '"function"':
        del members["type"]
    return json_calls(text) if members.keys() == {"name", "parameters"} else []


SYNTAXES: tuple[tuple[re.Pattern[str], Callable[[str], list[Call]]], ...] = (
    (_pattern(r"<tool_call>(.*?)</tool_call>"), _tagged),  # Qwen, GLM, Hermes
    (_pattern(r"<seed:tool_call>(.*?)</seed:tool_call>"), _tagged),  # Seed
    (_pattern(r"(<function=[^>]+>.*?</function>)"), _functions),  # Llama, without tags around it
    (_pattern(r"<\|python_tag\|>(.*)\Z"), json_calls),  # Llama 3
    (_pattern(r"\[TOOL_CALLS\](.*)\Z"), _mistral),  # Mistral
    (_pattern(r"<｜tool▁calls▁begin｜>(.*?)(?:<｜tool▁calls▁end｜>|\Z)"), _deepseek),  # DeepSeek V3
    (_pattern(r"<\|tool_calls_section_begin\|>(.*?)<\|tool_calls_section_end\|>"), _kimi),  # Kimi K2
    (_pattern(r"<\|tool_call\|>(.*)\Z"), json_calls),  # Granite 3
    (_pattern(r"<\|START_ACTION\|>(.*?)<\|END_ACTION\|>"), json_calls),  # Command R7B
    (_pattern(r"<\|tool_call>(.*?)<tool_call\|>"), _gemma),  # Gemma 4
    (_pattern(r"<｜DSML｜function_calls>(.*?)</｜DSML｜function_calls>"), _dsml),  # DeepSeek V3.2
)
"""The calls in the text of an answer, and their parsers. A parser returns no call if the text is not valid."""
