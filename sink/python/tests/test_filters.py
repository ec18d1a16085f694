"""Filters of samples and groups drop what they should, and count it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from made import Run, Sample

import rollout
from rollout import Where
from rollout.runs.select import FLAGS, GRADES, STATUSES

FORMATS = ["parquet", "arrow"]


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize(
    ("where", "left", "reason", "counted"),
    [
        (Where(), "plain graded stale young same long cut failed null", "keep", (0, 1, 2)),
        (Where(keep="keep"), "plain graded stale young same long cut failed null unkept", None, None),
        (Where(verification="count_verified"), "plain stale young same long cut failed null", "verification", (0, 1, 2)),
        (Where(status={"completed"}), "graded stale young same long failed null", "status", (0, 2, 3)),
        (Where(truncated="drop"), "plain graded stale young same long failed null", "truncated", (0, 1, 2)),
        (Where(flags={"cut", "realigned"}), "plain graded stale young same long failed null", "flags", (0, 1, 2)),
        (Where(max_tokens=5), "plain graded stale young same cut failed null", "max_tokens", (0, 1, 2)),
        (Where(policy_version=9, max_staleness=2, unknown_version="keep"), "plain graded young same long cut failed null", "max_staleness", (0, 1, 2)),
        (Where(policy_version=9, max_staleness=2, unknown_version="drop"), "young", "unknown_version", (0, 16, 21)),
        (Where(null_reward="drop"), "plain graded stale young same long cut failed", "null_reward", (0, 1, 2)),
        (Where(failed="drop"), "plain graded stale young same long cut null", "failed", (1, 1, 1)),
        (Where(reward_variance=True), "plain graded stale young long cut", "reward_variance", (4, 6, 7)),
        (Where(missing="keep"), "plain graded stale young same long cut failed null missing", "keep", (0, 1, 2)),
    ],
)
def test_filters(tmp_path: Path, fmt: str, where: Where, left: str, reason: str | None, counted: tuple[int, int, int] | None) -> None:
    # Two samples in a group; the filter applies to the second row of the first sample.
    run = Run(tmp_path / "run", fmt)

    def group(name: str, **facts: Any) -> list[Sample]:
        return [Sample(name, 0, [3, 4], 2, facts={"reward": 0.0, **facts}), Sample(name, 1, [3], 2, facts={"reward": 1.0})]

    known = {"policy_version_min": [9, 8], "versions": [[9, 8, 9], [-1, 8, -1, 9]]}
    old = {"policy_version_min": [9, 6], "versions": [[9, 8, 9], [-1, 6, -1, 9]]}
    samples = [
        *group("plain"),
        *group("graded", verification=["exact", "unverified"]),
        *group("stale", **old),
        *[Sample("young", i, [3, 4], 2, facts={**known, "reward": float(i)}) for i in range(2)],
        *[Sample("same", i, [3], 2, facts={"reward": 0.5}) for i in range(2)],
        Sample("long", 0, [3, 6], 2, facts={"reward": 0.0}),
        Sample("long", 1, [3], 2),
        *group("cut", truncated=[False, True], status="truncated", flags=["cut"]),
        Sample("failed", 0, [], 2, failures=2),
        Sample("failed", 1, [3], 2),
        *group("null"),
        *group("unkept", keep=[None, False]),
        Sample("missing", 0, [3], 2),
    ]
    samples[1].facts["status"] = "max_steps"
    for s in samples:
        if s.group == "null":
            s.facts["reward"] = None if s.index == 0 else 1.0
    want = set(left.split())
    run.commit(samples)
    ds = rollout.Dataset(run.dir, where=where)
    # partial groups stay, and count the samples that they have lost
    got = {g.id: g for g in ds}
    whole = {i for i, g in got.items() if g.left_out == 0}
    assert all(g.size == len({r["sample_key"] for r in g.rows}) + g.failed + g.empty + g.missing + g.left_out for g in got.values())
    assert whole == want
    if reason is not None and counted is not None:
        groups, n, rows = counted
        assert ds.counts[reason] == {"groups": groups, "samples": n, "rows": rows}, ds.counts
    assert ("missing" in ds.counts) == (where.missing == "drop")


def test_a_reward_that_is_no_number_is_none(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    run.commit([Sample("g", i, [3, 4], 3, facts={"reward": r}) for i, r in enumerate([float("nan"), [1.0, None], 0.0])])
    ds = rollout.Dataset(run.dir, where=Where(null_reward="drop"))
    assert [r["sample_key"] for r in ds[0].rows] == ["g-2", "g-2"]
    assert ds.counts == {"null_reward": {"groups": 0, "samples": 2, "rows": 4}}


def test_single_segments(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    run.commit([Sample("a", 0, [3, 6, 3], 2), Sample("a", 1, [6], 2), Sample("b", 0, [9], 1)])
    ds = rollout.Dataset(run.dir, where=Where(max_tokens=5, segments=True))
    (group,) = ds
    assert [(r["sample_key"], r["segment_index"]) for r in group.rows] == [("a-0", 0), ("a-0", 2)]
    assert group.left_out == 1
    assert ds.counts == {"max_tokens": {"groups": 0, "samples": 2, "rows": 3}, "no_rows": {"groups": 1, "samples": 0, "rows": 0}}


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (lambda: Where(status="completed"), "must be a set of words"),
        (lambda: Where(verification="good"), "must be one of"),  # type: ignore[arg-type]
        (lambda: Where(verification="exakt"), "count_verified, exact; did you mean 'exact'"),  # type: ignore[arg-type]
        (lambda: Where(verification="verified"), "verification='verified': must be one of unverified, count_verified, exact$"),  # type: ignore[arg-type]
        (lambda: Where(status={"complete"}), "status='complete': must be one of completed, truncated, max_steps; did you mean 'completed'"),
        (lambda: Where(status=["completed", "error"]), "status='error': must be one of completed, truncated, max_steps$"),
        (lambda: Where(flags={"Cut"}), "flags='Cut': must be one of cut, .*, padded_id; did you mean 'cut'"),
        (lambda: Where(missing="no"), "must be 'keep' or 'drop'"),  # type: ignore[arg-type]
        (lambda: Where(max_staleness=1), "needs policy_version"),
        (lambda: Where(max_staleness=1, policy_version=3), "needs unknown_version"),
        (lambda: Where(policy_version=3), "need max_staleness"),
    ],
)
def test_bad_filters(bad: Callable[[], Where], says: str) -> None:
    with pytest.raises((ValueError, TypeError), match=says):
        bad()


def test_the_words_are_those_that_the_program_writes() -> None:
    root = Path(__file__).resolve().parents[3]

    def words(file: str, name: str) -> tuple[str, ...]:
        said = re.search(rf"\b{name}\s*= .*?string\{{(.*?)\}}", (root / file).read_text(encoding="utf-8"))
        assert said, f"{file}: has no {name}"
        return tuple(json.loads(f"[{said[1]}]"))

    assert words("tokenize/words.go", "flagWords") == FLAGS
    assert words("sink/sample.go", "dataStatuses") == STATUSES
    assert words("tokenize/words.go", "grades")[:3] == GRADES[::-1]  # quarantined samples have no rows
