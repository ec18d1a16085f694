"""The counts of every combination of filters equal a plain count over rows read with pyarrow."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from dataclasses import fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made import Run, Sample
from test_index import logs
from test_merges import merge, merges

import rollout
from rollout import Following, Where

facts = st.fixed_dictionaries(
    {
        "verification": st.sampled_from(["exact", "exact", "count_verified", "unverified"]),
        "status": st.sampled_from(["completed", "completed", "truncated", "max_steps"]),
        "truncated": st.booleans(),
        "flags": st.sampled_from([[], [], ["cut"], ["cut", "spliced"]]),
        "policy_version_min": st.sampled_from([None, 5, 7, 9]),
        "reward": st.sampled_from([None, 0.0, 1.0, 1.0, float("nan")]),
        "keep": st.sampled_from([None, None, True, False]),
    }
)
policies = st.sampled_from(["keep", "drop"])
wheres = st.fixed_dictionaries(
    {"missing": policies},
    optional={  # a few filters at a time, so that groups are left
        "keep": policies,
        "verification": st.sampled_from(["unverified", "unverified", "count_verified", "exact"]),
        "status": st.sampled_from([None, None, ("completed",), ("completed", "truncated")]),
        "truncated": st.sampled_from(["keep", "keep", "drop"]),
        "flags": st.sampled_from([(), (), ("spliced",), ("cut",)]),
        "min_tokens": st.sampled_from([0, 0, 3]),
        "max_tokens": st.sampled_from([None, 3, 4]),
        "null_reward": policies,
        "segments": st.booleans(),
        "failed": policies,
        "partial": policies,
        "reward_variance": st.booleans(),
    },
)
stale = st.sampled_from([{}, {}, *({"policy_version": 9, "max_staleness": n, "unknown_version": u} for n in (1, 3) for u in ("keep", "drop"))])


def bad(row: dict[str, Any], w: Where) -> str | None:
    """Return the first filter that drops a row."""
    grades = ["unverified", "count_verified", "exact"]
    version, reward = row["policy_version_min"], row["reward"]
    length = row["turn_offsets"][-1]
    hits = {
        "keep": w.keep == "drop" and row["keep"] is False,
        "verification": grades.index(row["verification"]) < grades.index(w.verification),
        "status": w.status is not None and row["status"] not in w.status,
        "truncated": w.truncated == "drop" and row["truncated"],
        "flags": bool(set(w.flags) & set(row["flags"])),
        "min_tokens": length < w.min_tokens,
        "max_tokens": w.max_tokens is not None and length > w.max_tokens,
        "max_staleness": w.max_staleness is not None and version is not None and version < (w.policy_version or 0) - w.max_staleness,
        "unknown_version": w.unknown_version == "drop" and version is None,
        "null_reward": w.null_reward == "drop" and (reward is None or reward != reward),
    }
    return next((name for name, hit in hits.items() if hit), None)


class Plain:
    """Counts computed plainly."""

    def __init__(self, rows: dict[str, list[dict[str, Any]]], where: Where) -> None:
        self.rows, self.where = rows, where
        self.counts: dict[str, dict[str, int]] = defaultdict(lambda: {"groups": 0, "samples": 0, "rows": 0})
        self.left: dict[str, list[tuple[str, int]]] = {}  # by kept group, its rows
        self.failed: dict[str, int] = {}  # and its failed samples

    def count(self, reason: str, groups: int, samples: int, rows: int) -> None:
        for name, n in (("groups", groups), ("samples", samples), ("rows", rows)):
            self.counts[reason][name] += n

    def sample(self, s: Sample) -> list[dict[str, Any]]:
        """Return the kept rows of a sample."""
        rows, order = self.rows[s.key], [f.name for f in fields(Where)]
        reasons = [bad(r, self.where) for r in rows]
        if self.where.segments and None in reasons:
            for reason in reasons:
                if reason:
                    self.count(reason, 0, 0, 1)
            return [r for r, reason in zip(rows, reasons) if not reason]
        hit = [r for r in reasons if r]
        if hit:
            self.count(hit[0] if self.where.segments else min(hit, key=order.index), 0, 1, len(rows))
        return [] if hit else rows

    def group(self, name: str, members: list[Sample], judged: dict[str, list[dict[str, Any]]]) -> None:
        """Apply the group filters."""
        size = max(s.size for s in members)
        with_rows = [s for s in members if s.lengths]
        stay = [s for s in with_rows if judged[s.key]]
        rewards = {self.rows[s.key][0]["reward"] for s in stay}
        known = {r for r in rewards if r is not None and r == r}
        w = self.where
        tests = {
            "missing": w.missing == "drop" and len(members) < size,
            "failed": w.failed == "drop" and len(with_rows) < len(members),
            "no_rows": not stay,
            "partial": w.partial == "drop" and len(stay) < len(with_rows),
            "reward_variance": w.reward_variance and len(known) < 2,
        }
        rows = [r for s in sorted(stay, key=lambda s: s.index) for r in judged[s.key]]
        for reason, hit in tests.items():
            if hit:
                self.count(reason, 1, len(stay), len(rows))
                return
        self.left[name] = [(r["sample_key"], r["segment_index"]) for r in rows]
        self.failed[name] = sum(1 for s in members if s.failures)


def dataset_of(commits: list[list[Sample]], rows: dict[str, list[dict[str, Any]]], where: Where) -> Plain:
    plain = Plain(rows, where)
    last = {s.key: s for commit in commits for s in commit}  # a later outcome replaces a failure
    judged = {key: plain.sample(s) for key, s in last.items() if s.lengths}
    for name in {s.group for s in last.values()}:
        plain.group(name, [s for s in last.values() if s.group == name], judged)
    return plain


def following_of(commits: list[list[Sample]], rows: dict[str, list[dict[str, Any]]], where: Where, after: tuple[int, int] = (0, 0)) -> Plain:
    """Return the counts of the groups after a cursor."""
    plain = Plain(rows, where)
    held: dict[str, dict[str, Sample]] = defaultdict(dict)
    done: set[str] = set()

    def complete(name: str) -> None:
        members = list(held[name].values())
        plain.group(name, members, {s.key: plain.sample(s) for s in members if s.lengths})

    for seq, commit in enumerate(commits, 1):
        number = 0
        new = [s for s in commit if s.group not in done]
        for s in commit:
            if s.group in done and seq > after[0]:
                plain.count("late", 0, 1, len(s.lengths))
        for s in new:
            held[s.group][s.key] = s
        for name in dict.fromkeys(s.group for s in new):
            if len(held[name]) >= max(s.size for s in held[name].values()):
                done.add(name)
                number += 1
                if (seq, number) > after:
                    complete(name)
    for name in set(held) - done:
        complete(name)
    return plain


def read(run: Run) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of each sample, read only with pyarrow."""
    out: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for entry in run.counting():
        path = run.dir / "data" / f"part-{entry}.{run.fmt}"
        if path.exists():
            table = pq.read_table(path) if run.fmt == "parquet" else pa.ipc.open_stream(path.read_bytes()).read_all()
            for row in table.to_pylist():
                out[row["sample_key"]].append(row)
    return out


def told(counts: Any) -> dict[str, dict[str, int]]:
    return {reason: dict(n) for reason, n in counts.items() if any(n.values())}


def compare(run: Run, commits: list[list[Sample]], where: Where) -> None:
    rows = read(run)
    counted(rollout.Dataset(run.dir, where=where), dataset_of(commits, rows, where))
    counted(Following(run.dir, where=where, timeout=60), following_of(commits, rows, where))
    follow, cursors = Following(run.dir, where=where), []
    while follow.poll() is not None:
        cursors.append(follow.cursor)
    for cursor in cursors:
        again = Following(run.dir, where=where, after=cursor, timeout=60)
        counted(again, following_of(commits, rows, where, (cursor["seq"], cursor["groups"])))


def counted(groups: rollout.Dataset | Following, want: Plain) -> None:
    """Compare the rows and the counts. Each group accounts for all its samples."""
    got = {g.id: g for g in groups}
    assert {name: [(r["sample_key"], r["segment_index"]) for r in g.rows] for name, g in got.items()} == want.left
    assert told(groups.counts) == told(want.counts)
    assert {name: g.failed for name, g in got.items()} == want.failed
    for g in got.values():
        assert g.size == len({r["sample_key"] for r in g.rows}) + g.failed + g.empty + g.missing + g.left_out


ODD: list[dict[str, Any]] = [
    {}, {"verification": ["exact", "unverified"]}, {"status": "max_steps"}, {"truncated": [False, True], "status": "truncated", "flags": ["cut"]},
    {"policy_version_min": [9, 6]}, {"policy_version_min": [9, 8]}, {"reward": None}, {"reward": float("nan")}, {"keep": [None, False]},
]  # fmt: skip
"""Facts of the first of two samples in a group."""


@pytest.mark.parametrize("fmt", ["parquet", "arrow"])
@pytest.mark.parametrize(
    ("where", "reason"),
    [
        (Where(), "keep"),
        (Where(verification="count_verified"), "verification"),
        (Where(status={"completed"}), "status"),
        (Where(truncated="drop"), "truncated"),
        (Where(flags={"cut", "realigned"}), "flags"),
        (Where(min_tokens=4), "min_tokens"),
        (Where(max_tokens=5), "max_tokens"),
        (Where(max_tokens=5, segments=True), "max_tokens"),
        (Where(policy_version=9, max_staleness=2, unknown_version="keep"), "max_staleness"),
        (Where(policy_version=9, max_staleness=2, unknown_version="drop"), "unknown_version"),
        (Where(null_reward="drop"), "null_reward"),
        (Where(missing="drop"), "missing"),
        (Where(failed="drop"), "failed"),
        (Where(partial="drop"), "partial"),
        (Where(reward_variance=True), "reward_variance"),
    ],
)
def test_each_filter_drops_something(tmp_path: Path, fmt: str, where: Where, reason: str) -> None:
    run = Run(tmp_path / "run", fmt)
    commit = [Sample(f"g{g}", i, [3, 4], 2, facts={"reward": float(i), **(odd if i == 0 else {})}) for g, odd in enumerate(ODD) for i in range(2)]
    commit += [Sample("same", i, [3, 6 * i + 3], 2, facts={"reward": 0.5}) for i in range(2)]
    commit += [Sample("three", i, [3], 3, facts={"reward": r}) for i, r in enumerate([float("nan"), 0.0, 1.0])]
    commit += [Sample("failed", 0, [], 2, failures=2), Sample("failed", 1, [3], 2), Sample("missing", 0, [3], 2)]
    run.commit(commit)
    run.plan(len(commit))
    compare(run, [commit], where)
    assert told(rollout.Dataset(run.dir, where=where).counts)[reason]["rows"] > 0


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(logs(), st.data(), wheres, stale, st.lists(merges, max_size=2), st.sampled_from(["parquet", "arrow"]))
def test_counts_are_those_of_a_plain_count(
    commits: list[list[Sample]], data: st.DataObject, where: dict[str, Any], more: dict[str, Any], how: list[Any], fmt: str
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder) / "run", fmt)
        for commit in commits:
            for s in commit:
                drawn = [data.draw(facts) for _ in s.lengths]
                s.facts = {name: [d[name] for d in drawn] for name in (drawn[0] if drawn else ()) if name != "flags"}
                s.facts |= {"flags": drawn[0]["flags"]} if drawn else {}
            run.commit(commit)
        for one in how if commits else ():
            merge(run, one)
        run.finish()
        run.plan(len({s.key for commit in commits for s in commit}))
        compare(run, commits, Where(**where, **more))


@pytest.mark.parametrize("fmt", ["parquet", "arrow"])
def test_a_group_is_counted_without_the_rows_that_were_counted_before(tmp_path: Path, fmt: str) -> None:
    run = Run(tmp_path / "run", fmt)
    commit = [Sample("a", 0, [3, 6, 3], 2), Sample("a", 1, [3], 2), Sample("b", 0, [6, 3], 2), Sample("b", 1, [6], 2), Sample("c", 0, [3, 6], 2)]
    run.commit(commit)
    run.plan(5)
    where = Where(segments=True, max_tokens=5, partial="drop", reward_variance=True)
    compare(run, [commit], where)
    assert rollout.Dataset(run.dir, where=where).counts == {
        "max_tokens": {"groups": 0, "samples": 1, "rows": 4},
        "missing": {"groups": 1, "samples": 1, "rows": 1},
        "partial": {"groups": 1, "samples": 1, "rows": 1},
        "reward_variance": {"groups": 1, "samples": 2, "rows": 3},
    }
