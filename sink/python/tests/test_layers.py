"""The modules of the package import each other without circles, and only from lower parts."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import rollout as package

ROOT = Path(package.__file__).parent
BELOW = {"": {""}, "runs": {"", "runs"}, "data": {"", "runs", "data"}, "train": {"", "runs", "data", "train"}, "collecting": {"", "runs", "collecting"}, "tracking": {"", "runs", "tracking"}}
"""For each part of the package, the parts that its modules can import; "" is the top folder."""
ABOVE = {"rollout", "rollout.__main__", "rollout._actors", "rollout._bridge", "rollout.ray", "rollout.trl", "rollout.verl"}
"""Modules of the top folder that can import any part."""


def imports() -> dict[str, set[str]]:
    """Return the modules of the package that each one imports, anywhere in its code."""
    files = {".".join(("rollout", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__"): path for path in ROOT.rglob("*.py")}
    out: dict[str, set[str]] = {}
    for name, path in files.items():
        out[name] = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                out[name] |= {alias.name for alias in node.names} & files.keys()
            elif isinstance(node, ast.ImportFrom):
                assert not node.level, f"{path}:{node.lineno}: a relative import"
                found = {f"{node.module}.{alias.name}" for alias in node.names} & files.keys()
                out[name] |= found or {str(node.module)} & files.keys()
    return out


def part(module: str) -> str:
    """Return the part of the package that a module is in."""
    return next((name for name in BELOW if name and f"{module}.".startswith(f"rollout.{name}.")), "")


def test_imports_have_no_circle() -> None:
    graph = imports()
    assert sum(map(len, graph.values())) > 100  # otherwise the test reads the wrong files
    TopologicalSorter(graph).prepare()  # raises CycleError


def test_a_part_imports_only_lower_parts() -> None:
    for name, used in imports().items():
        if name not in ABOVE:
            assert {u for u in used if part(u) not in BELOW[part(name)] or u in ABOVE} == set(), name
