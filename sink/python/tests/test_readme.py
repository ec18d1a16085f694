"""Every Python block of the README runs, in order, in the folder with the run of its quick start."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

README = Path(__file__).resolve().parents[3] / "README.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="session")
def quick_start(collect: Callable[..., Path]) -> Path:
    """The run that the first block of commands collects."""
    simulate = re.search(r"^rollout simulate (.*?) --write-tasks", blocks("sh")[0], re.MULTILINE)
    command = re.search(r"^rollout collect .*--tasks tasks.jsonl (.*) --out run1$", blocks("sh")[0], re.MULTILINE)
    assert simulate and command, "the quick start is not where it was"
    return collect(*command[1].split(), simulate=simulate[1].split())


@pytest.mark.parametrize("number", range(len(blocks("python"))))
def test_python_block(quick_start: Path, tmp_path: Path, number: int) -> None:
    assert quick_start.name == "run1"
    for name in ("datasets", "torch"):
        if re.search(rf"^(import|from) {name}\b", blocks("python")[number], re.MULTILINE):
            pytest.importorskip(name)
    done = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", "-c", blocks("python")[number]],
        cwd=quick_start.parent,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, f"{blocks('python')[number]}\n{done.stderr[-4000:]}"
    assert done.stdout.strip(), "the block shows nothing"
