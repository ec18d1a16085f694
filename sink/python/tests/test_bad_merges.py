"""Damaged merges are errors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from made import Run, Sample
from test_merges import small

import rollout
from rollout import Following, log


def refused(run: Run, says: str, *reads: Callable[[Path], object]) -> None:
    for read in reads:
        with pytest.raises(rollout.CorruptError, match=says):
            read(run.dir)


def follow(run: Path) -> None:
    list(Following(run))


@pytest.fixture
def merged(tmp_path: Path) -> Run:
    """Entry 5 is a merge of 1 to 4, and entry 6 a commit."""
    run = Run(tmp_path / "run")
    small(run, 4)
    run.plan(8)
    run.merge(range(1, 5))
    run.commit([Sample("last", 0, [3], 1)])
    return run


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda e: e.update(replaces=[[2, 4]]), "entry 1 is missing"),
        (lambda e: e.update(replaces=[[1, 3]]), "in ascending order, and replace them"),
        (lambda e: e.update(replaces=[[1, 2], [2, 4]]), "the ranges must be in ascending order"),
        (lambda e: e.update(replaces=[[1, 5]]), "and end before the entry"),
        (lambda e: e.update(replaces=[[1, "4"]]), "cannot be read"),
        (lambda e: e.update(replaces=7), "cannot be read"),
        (lambda e: e.pop("replaces"), "entry 1 is missing"),
        (lambda e: e.pop("merged"), "cannot be read"),
        (lambda e: e.update(merged=[]), "its commits have 0 samples"),
        (lambda e: e["merged"][1].update(samples=0), "0 samples of commit 2"),
        (lambda e: e["merged"][1].update(samples=3), "have 9 samples, but the entry has 8"),
        (lambda e: e["merged"][1].update(seq=1), "follow commit 1"),
        (lambda e: e["merged"][3].pop("tokens"), "tokens"),
        (lambda e: e.update(seq=7), "the entry has number 7"),
        (lambda e: e.update(run_id="x"), "run 'x'"),
    ],
)
def test_bad_merges(merged: Run, change: Any, says: str) -> None:
    merged.rewrite(5, change)
    refused(merged, says, rollout.Dataset, follow, log.table)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda e: e["samples"][5].update(rows=2), "its samples have 9 rows, but its shard has 8"),
        (lambda e: e["samples"][5].update(group=-1), "negative group"),
        (lambda e: e["samples"][5].update(failures=-1), "negative number of rows or failures"),
        (lambda e: (e["samples"][5].update(rows=-1), e["samples"][6].update(rows=3)), "negative number of rows or failures"),
        (lambda e: e["groups"].clear(), "cannot be read"),
    ],
)
def test_bad_samples_of_merges(merged: Run, change: Any, says: str) -> None:
    # A table of rows reads no samples.
    merged.rewrite(5, change)
    refused(merged, says, rollout.Dataset, follow)


def test_every_byte_of_a_merge(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    run.commit([Sample("a", 0, [3], 1)])
    run.merge([1])
    body = run.entry(2).read_bytes()
    for at in range(len(body)):
        flips = [body[:at] + bytes([body[at] ^ bit]) + body[at + 1 :] for bit in (1, 0x40)]
        for bad in (*flips, body[:at], body[:at] + body[at + 1 :]):
            run.entry(2).write_bytes(bad)
            with pytest.raises(rollout.CorruptError):
                list(log.commits(run.dir))


def test_a_merge_without_ranges(tmp_path: Path) -> None:
    """The entries that it merges still exist, as before it moves them."""
    run = Run(tmp_path / "run")
    small(run, 4)
    run.plan(8)
    run.merge(range(1, 5), steps=0)
    run.rewrite(5, lambda e: e.pop("replaces"))
    refused(run, "cannot be read: KeyError.'replaces'", rollout.Dataset, follow, log.table)
