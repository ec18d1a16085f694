"""What the tests of collect() share."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def prompts(n: int) -> list[dict[str, Any]]:
    return [{"prompt": f"p{i}"} for i in range(n)]


def heard(run: Path, op: str) -> list[dict[str, Any]]:
    return [r for r in map(json.loads, (run / "heard.jsonl").read_text().splitlines()) if r["op"] == op]


def wait_for(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return not Path(f"/proc/{pid}/stat").exists() or Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
