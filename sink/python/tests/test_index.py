"""The index of a run equals the result of reading its log plainly."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made import Run, Sample

import rollout
from rollout.runs.index import SUPERSEDED, Index

outcomes = st.sampled_from(["rows", "rows", "rows", "failed", "empty", "never"])


@st.composite
def logs(draw: st.DrawFn) -> list[list[Sample]]:
    """Return commits of samples in any order; a failed sample can succeed in a later commit."""
    commits: list[list[Sample]] = [[] for _ in range(draw(st.integers(1, 4)))]
    todo = []
    for g in range(draw(st.integers(0, 5))):
        size = draw(st.integers(1, 4))
        for i in range(size):
            todo.append((f"g{g}", i, size, draw(outcomes), draw(st.integers(0, len(commits) - 1)), draw(st.booleans())))
    for group, i, size, outcome, at, again in draw(st.permutations(todo)):
        lengths = [2 + (i + k) % 3 for k in range(1 + i % 2)] if outcome == "rows" else []
        if outcome == "never":
            continue
        commits[at].append(Sample(group, i, lengths, size, failures=int(outcome == "failed")))
        if outcome == "failed" and again and at + 1 < len(commits):
            commits[-1].append(Sample(group, i, [4], size))
    return [c for c in commits if c]


def plain(commits: list[list[Sample]]) -> dict[str, dict[int, Sample]]:
    """Return, by group and index, the outcome that counts: the last one."""
    out: dict[str, dict[int, Sample]] = defaultdict(dict)
    for commit in commits:
        for s in commit:
            out[s.group][s.index] = s
    return out


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(logs(), st.sampled_from(["parquet", "arrow"]))
def test_groups_are_whole(commits: list[list[Sample]], fmt: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder) / "run", fmt)
        for commit in commits:
            run.commit(commit)
        ds = rollout.Dataset(run.dir, where=rollout.Where(missing="keep"))
        want = plain(commits)
        assert (ds.selection.indexes[0].samples.outcome != SUPERSEDED).sum() == sum(len(s) for s in want.values())
        with_rows = {g for g, s in want.items() if any(x.lengths for x in s.values())}
        assert {g.id for g in ds} == with_rows
        assert ds.counts.get("no_rows", {"groups": 0})["groups"] == len(want) - len(with_rows)
        for i, group in enumerate(ds):
            members = want[group.id]
            rows = [r for at in sorted(members) for r in members[at].rows()]
            assert [(r["sample_key"], r["segment_index"], r["input_ids"].tolist()) for r in group.rows] == [
                (r["sample_key"], r["segment_index"], r["input_ids"]) for r in rows
            ]
            assert group.failed == sum(1 for s in members.values() if s.failures)
            assert group.empty == sum(1 for s in members.values() if not s.failures and not s.lengths)
            have = sum(1 for s in members.values() if s.lengths)
            assert have + group.failed + group.empty + group.missing == group.size
            assert ds[i].id == group.id == ds.group(group.id).id
            for r in group.rows:
                assert ds.row((r["sample_key"], r["segment_index"]))["input_ids"].tolist() == r["input_ids"].tolist()


@settings(deadline=None, max_examples=20)
@given(logs())
def test_an_index_grows_as_it_is_made(commits: list[list[Sample]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder) / "run")
        growing = Index(run.dir)
        for commit in commits:
            run.commit(commit)
            assert growing.update() == 1
            growing.samples  # noqa: B018 joined in between
            anew = Index(run.dir)
            anew.update()
            for name, values in vars(anew.samples).items():
                assert values.tolist() == getattr(growing.samples, name).tolist(), name
            assert anew.group_ids == growing.group_ids


def test_rows_by_number_are_those_of_the_log(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    run.commit([Sample("a", 0, [3, 4], 2), Sample("b", 0, [5], 1)])
    run.commit([Sample("a", 1, [6], 2)])
    ds = rollout.Dataset([run.dir, run.dir])
    assert [len(ds.row(n)["input_ids"]) for n in range(8)] == [3, 4, 5, 6] * 2
    for n in (8, -1):
        with pytest.raises(IndexError, match="the log has 8"):
            ds.row(n)
    with pytest.raises(KeyError):
        ds.row(("a-0", 2))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda e: e["samples"][0].update(group=7), "cannot be read"),
        (lambda e: e["samples"][0].update(group=-1), "negative group"),
        (lambda e: e["samples"][0].update(rows=2), "its samples have 2 rows, but its shard has 1"),
        (lambda e: e["samples"][0].update(rows=-1), "negative"),
        (lambda e: e["samples"][0].pop("index"), "index"),
        (lambda e: e["groups"][0].update(size="x"), "cannot be read"),
        (lambda e: e["groups"].clear(), "cannot be read"),
        (lambda e: e["shards"][0].pop("rows"), "cannot be read"),
        (lambda e: e["samples"].append(3), "cannot be read"),
    ],
)
def test_bad_entries(tmp_path: Path, change: Any, says: str) -> None:
    run = Run(tmp_path / "run")
    run.commit([Sample("a", 0, [3], 1)])
    run.rewrite(1, change)
    with pytest.raises(rollout.CorruptError, match=says):
        rollout.Dataset(run.dir)
