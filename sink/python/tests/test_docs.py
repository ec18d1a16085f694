"""Every Python block of the pages runs in its own process, in the folder with the run of
the README's quick start, and prints something.

A block is self-contained: it imports what it uses. A block that begins with `# continued` runs
after the previous block of the page, in one process. Examples in docstrings (>>>) run as
well.
"""

from __future__ import annotations

import doctest
import importlib.util
import os
import pkgutil
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import rollout as package

ROOT = Path(__file__).resolve().parents[3]
SERVER = "http://127.0.0.1:8283"
ENGINE = "http://127.0.0.1:8000"
TAP = "http://127.0.0.1:30001"
STANDINS = ROOT / "cmd" / "rollout" / "testdata" / "standin"
"""Stand-ins for packages that the machine can lack."""
PAGES = (ROOT / "cmd" / "rollout" / "testdata" / "pages.txt").read_text(encoding="utf-8").split()


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    # An unpaired fence would hide what follows it.
    marks = re.findall(r"^ *```(\w*)$", text, re.MULTILINE)
    assert all(mark == "" for mark in marks[1::2]), f"{page}: the marks of its blocks do not pair"
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def programs() -> Iterator[tuple[str, str]]:
    """Yield the Python programs of the pages, with their places."""
    for page in PAGES:
        before = ""
        for number, block in enumerate(blocks(page, "python")):
            before = f"{before}\n{block}" if block.startswith("# continued") else block
            yield f"{page} {number}", before


@pytest.fixture(scope="session")
def quick_start(collect: Callable[..., Path]) -> Path:
    """The run that the README's first block of commands collects."""
    first = blocks("README.md", "sh")[0]
    simulate = re.search(r"^rollout simulate (.*?) --write-tasks", first, re.MULTILINE)
    command = re.search(r"^rollout collect .*--tasks tasks.jsonl (.*) --out run1$", first, re.MULTILINE)
    assert simulate and command, "the quick start is not where it was"
    return collect(*command[1].split(), simulate=simulate[1].split())


@pytest.mark.parametrize(("where", "code"), list(programs()), ids=lambda v: v if v.count("\n") == 0 else "")
def test_python_block(
    quick_start: Path, simulator: Callable[..., tuple[str, Path]], engine: str, tap: Callable[..., str], tmp_path: Path, where: str, code: str
) -> None:
    assert quick_start.name == "run1"
    if SERVER in code:  # the quick start's server; tests have one on a free port
        code = code.replace(SERVER, simulator("--input-ids", "--scripted", "1", "--wrong", "0.3")[0])
    if TAP in code:
        code = code.replace(TAP, tap())
    code = code.replace(ENGINE, engine)
    # The environment with the package is activated.
    env = {**os.environ, "PATH": os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])}
    if shutil.which("mini") is None:
        mini = tmp_path / "mini"
        mini.write_text(f"#!/bin/sh\nexec {sys.executable} {STANDINS / 'mini.py'} \"$@\"\n")
        mini.chmod(0o700)
        env["PATH"] = os.pathsep.join([str(tmp_path), env["PATH"]])
    if importlib.util.find_spec("openai") is None:
        env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(STANDINS), env.get("PYTHONPATH")]))
    for name in ("datasets", "ray", "torch"):
        if re.search(rf"^(import|from) {name}\b", code, re.MULTILINE):
            pytest.importorskip(name)
    command = [sys.executable, "-W", "error::ResourceWarning", "-c", code]
    done = subprocess.run(command, cwd=quick_start.parent, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{where}:\n{code}\n{done.stderr[-4000:]}"
    # A block that makes an object for a trainer, which is not here, shows nothing.
    assert done.stdout.strip() or re.search(r"Trainer\b.*\.(train|fit)\(", code), f"{where}: the block shows nothing:\n{code}"


@pytest.mark.parametrize("name", sorted(m.name for m in pkgutil.walk_packages(package.__path__, "rollout.") if not m.name.endswith("__main__")))
def test_docstrings(quick_start: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(quick_start.parent)
    if name == "rollout.ray" and importlib.util.find_spec("ray") is None:
        with pytest.raises(ImportError, match="rollout.ray needs Ray on all nodes: pip install ray"):
            importlib.import_module(name)
        return
    failed, _ = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert failed == 0


def test_pages_have_programs() -> None:
    assert {where.split()[0] for where, _ in programs()} == {"README.md", "sink/README.md", "sink/python/README.md", "sink/python/TRAINERS.md"}
