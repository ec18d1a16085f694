"""A collector's flags, settings file and environment."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rollout._types import Path

_REFERENCE = re.compile(r"\$\{(env|file):.+\}\Z", re.DOTALL)
_SECRET = "COLLECT_SECRET_"
_NAME = re.compile(r"(^|_)(secret|password|passwd|passphrase|token|(api|access|private|secret)_?key|pat|credentials?)\Z", re.IGNORECASE)
_PLACEHOLDER = re.compile(r"\{(prompt|base_url|key|model|workdir|home|context|max_output)\}")
_OF_TOOLS = ("secrets", "tool_exec_environment_variables")
"""Fields of agent.create that contain secrets for the agent's tools."""


@dataclass
class Settings:
    """The arguments, environment variables and settings file for `rollout collect`."""

    flags: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    """Variables for the collector, in addition to the environment of this process."""
    secrets: list[str] = field(default_factory=list, repr=False)
    """Values that must not appear in any message."""
    body: bytes | None = None
    """The content of the settings file for each process; see Child."""


@dataclass
class Limits:
    """Limits on the supervisor's waits and restarts."""

    restarts: int = 5
    """The number of restarts without a new commit that are allowed before CrashError is
    raised."""
    lock_wait: float = 60.0
    """Seconds to wait for another process to release the folder."""
    grace: float = 20.0
    """Seconds for the process to end before it is killed."""


def settings(
    config: Path | Mapping[str, Any] | None, flags: Mapping[str, Any], more: Sequence[str], env: Mapping[str, str] | None
) -> Settings:
    """Return the settings for starting a collector.

    config is the path of a file, or the settings as a dict of sections. A secret in the dict is
    passed in an environment variable, and the settings file refers to this variable. flags maps
    flag names to values. If a value is None, the flag is omitted. If a value is a list, the flag
    is repeated for every element.
    """
    out = Settings(env=dict(env or {}))
    if isinstance(config, Mapping):
        body = {str(k): v for k, v in config.items()}
        _hide(body, out)
        try:
            text = json.dumps(body, allow_nan=False)
        except (TypeError, ValueError) as err:
            raise TypeError(f"config: {err}; want only strings, finite numbers, booleans, None, lists and dicts") from None
        out.body = text.encode()  # JSON is valid YAML
    elif config is not None:
        out.flags += ["-c", os.fspath(config)]
    for name, value in flags.items():
        values = [] if value is None else list(value) if isinstance(value, (list, tuple)) else [value]
        out.flags += [f"--{name}={v}" for v in values]
    out.flags += [str(f) for f in more]
    out.secrets += [v for k, v in out.env.items() if (_NAME.search(k) or re.search("PASSWORD|SECRET|TOKEN|KEY", k.upper())) and len(v) >= 6]
    return out


def _hide(body: dict[str, Any], out: Settings) -> None:
    """Move the secrets of a settings dict into the environment. Copies the sections it changes."""
    for name in ("server", "tokens", "harness", "agent"):
        if isinstance(body.get(name), Mapping):
            body[name] = dict(body[name])
    server, tokens, harness, agent = (body.get(name) or {} for name in ("server", "tokens", "harness", "agent"))
    if isinstance(server, dict):
        _move(server, "password", "PASSWORD", out)
        _move_all(server, "headers", "HEADER", out)
        if isinstance(server.get("urls"), (list, tuple)):
            server["urls"] = [dict(url) if isinstance(url, Mapping) else url for url in server["urls"]]
            for i, url in enumerate(server["urls"]):
                _move_all(url, "headers", f"SERVER_{i}_HEADER", out)
    if isinstance(tokens, dict):
        _move(tokens, "tap_token", "TAP_TOKEN", out)
        if isinstance(tokens.get("policy_version"), str) and re.search("[?@]", tokens["policy_version"]):
            _move(tokens, "policy_version", "POLICY_VERSION", out)
    if isinstance(harness, dict):
        _move_all(harness, "env", "ENV", out, is_secret)
    create = agent.get("create") if isinstance(agent, dict) else None
    if isinstance(create, Mapping) and any(create.get(name) for name in _OF_TOOLS):
        del agent["create"]
        out.env["ROLLOUT_AGENT_CREATE"] = json.dumps(create)
        for name in _OF_TOOLS:
            held = create.get(name)
            if isinstance(held, Mapping):
                out.secrets += [v for v in held.values() if isinstance(v, str) and v]


def is_secret(name: str, value: str) -> bool:
    """Report whether the value of a variable of a harness must be a reference.

    The program has the same rule (IsSecret in collector/harness/secrets.go).
    """
    return value != "" and _NAME.search(name) is not None and not _PLACEHOLDER.search(value)


def _move(section: dict[str, Any], key: str, name: str, out: Settings) -> None:
    """Move a string into the environment variable with this name, and leave a reference to it."""
    value = section.get(key)
    if isinstance(value, str) and value and not _REFERENCE.match(value):
        out.env[_SECRET + name] = value
        out.secrets.append(value)
        section[key] = "${env:" + _SECRET + name + "}"


def _move_all(section: Any, key: str, name: str, out: Settings, secret: Callable[[str, str], bool] = lambda *_: True) -> None:
    """Move the strings of a dict that are secrets."""
    if isinstance(section, dict) and isinstance(section.get(key), Mapping):
        section[key] = {str(k): v for k, v in section[key].items()}
        for i, (k, v) in enumerate(sorted(section[key].items())):
            if isinstance(v, str) and secret(k, v):
                _move(section[key], k, f"{name}_{i}", out)


def without(lines: Sequence[str], secrets: Sequence[str]) -> tuple[str, ...]:
    """Return the lines with every secret replaced by "[hidden]"."""
    out = []
    for line in lines:
        for secret in secrets:
            line = line.replace(secret, "[hidden]")
        out.append(line)
    return tuple(out)
