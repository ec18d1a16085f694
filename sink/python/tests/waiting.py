"""Helpers shared by the tests of collect()."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


PATIENCE = 180.0
"""Seconds after which a waiting test fails: many, for a busy machine."""


def prompts(n: int) -> list[dict[str, Any]]:
    return [{"prompt": f"p{i}"} for i in range(n)]


def heard(run: Path, op: str) -> list[dict[str, Any]]:
    path = run / "heard.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [r for r in map(json.loads, (line for line in lines if line.endswith("\n"))) if r["op"] == op]


def wait_for(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except ProcessLookupError:  # it ended meanwhile
        return False
    except FileNotFoundError:
        return not Path("/proc/self").exists()
