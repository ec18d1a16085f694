"""Merges of small commits: a reader continues as if there were none."""

from __future__ import annotations

import itertools
import json
import os
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made import Run, Sample
from test_index import logs

import rollout
from rollout import Following, Where, log
from rollout.data import stream

# A merge: the positions of its first and last entry among the valid ones, as fractions; whether
# shards are moved before entries; and the step at which it is cut short.
merges = st.tuples(st.floats(0, 1), st.floats(0, 1), st.booleans(), st.integers(0, 12))


def merge(run: Run, how: tuple[float, float, bool, int]) -> None:
    """Merge some consecutive entries."""
    first, last, shards_first, steps = how
    there = run.counting()
    ends = sorted((round(first * (len(there) - 1)), round(last * (len(there) - 1))))
    if any(run.commits.get(c) for e in there[ends[0] : ends[1] + 1] for c in run.merges.get(e, [e])):
        run.merge(there[ends[0] : ends[1] + 1], steps, shards_first)


def described(group: rollout.Group) -> Any:
    rows = [(r["sample_key"], r["segment_index"], r["input_ids"].tolist()) for r in group.rows]
    return group.id, group.size, group.failed, group.empty, group.missing, group.left_out, rows


def held(ds: rollout.Dataset) -> Any:
    rows = []
    for n in itertools.count():
        try:
            rows.append(described(rollout.Group("", "", 0, [ds.row(n)])))
        except IndexError:
            break
    return [described(g) for g in ds], [described(ds[i]) for i in range(len(ds))], rows, ds.counts, ds.snapshot


def followed(run: Path, **options: Any) -> tuple[list[Any], list[dict[str, Any]], Any]:
    follow = Following(run, timeout=0, interval=0, **options)
    got, cursors = [], []
    with pytest.raises(TimeoutError):
        for group in follow:
            got.append(described(group))
            cursors.append(follow.cursor)
    return got, cursors, follow.counts


WHERES = [Where(), Where(max_tokens=3, missing="keep"), Where(max_tokens=3, segments=True, partial="drop")]


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(logs(), st.lists(merges, min_size=1, max_size=4), st.sampled_from(["parquet", "arrow"]), st.sampled_from(WHERES))
def test_a_log_says_the_same_after_merges(commits: list[list[Sample]], how: list[Any], fmt: str, where: Where) -> None:
    with tempfile.TemporaryDirectory() as folder:
        plain, run = Run(Path(folder) / "plain", fmt), Run(Path(folder) / "run", fmt)
        for commit in commits:
            plain.commit(commit)
            run.commit(commit)
        if not commits:
            return
        early = rollout.Dataset(run.dir, where=where)
        for one in how:
            merge(run, one)
        want, late = rollout.Dataset(plain.dir, where=where), rollout.Dataset(run.dir, where=where)
        assert held(late) == held(early) == held(want)
        run.finish()
        assert held(late) == held(early) == held(rollout.Dataset(run.dir, where=where)) == held(want)
        for seq in range(len(commits) + 1):
            then = [{"run_id": "r", "seq": seq, "scores": "collected"}]
            assert held(late.at(then)) == held(want.at(then))
        keys = [s["key"] for entry in log.commits(run.dir) for s in entry["samples"]]
        assert keys == [s["key"] for entry in log.commits(plain.dir) for s in entry["samples"]]
        assert log.table(run.dir) == log.table(plain.dir) and log.table(run.dir, "failures") == log.table(plain.dir, "failures")

        got, cursors, counts = followed(run.dir, where=where)
        assert (got, cursors, counts) == followed(plain.dir, where=where)
        for n, cursor in enumerate(cursors, 1):
            assert followed(run.dir, where=where, after=cursor)[:2] == (got[n:], cursors[n:])


class Play:
    """Writes a run step by step while it is read: commits, merges that are cut short, and their
    completion."""

    def __init__(self, run: Run, commits: list[list[Sample]], how: list[Any]) -> None:
        self.run = run
        self.todo: list[Callable[[], object]] = []
        for n, commit in enumerate(commits):
            self.todo.append(lambda commit=commit: run.commit(commit))  # type: ignore[misc]
            for one in how[n :: len(commits)]:
                self.todo.append(lambda one=one: merge(run, one))  # type: ignore[misc]
                self.todo.append(run.finish)
        run.plan(len({s.key for c in commits for s in c}))

    def step(self, *_: object) -> None:
        if self.todo:
            self.todo.pop(0)()


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(logs(), st.lists(merges, min_size=1, max_size=8), st.sampled_from(["parquet", "arrow"]), st.integers(0, 9), st.integers(0, 4))
def test_followers_pass_merges(commits: list[list[Sample]], how: list[Any], fmt: str, head: int, second: int) -> None:
    """A follower starts after some steps; a second one after its cursor, after some groups."""
    with tempfile.TemporaryDirectory() as folder:
        plain, run = Run(Path(folder) / "plain", fmt), Run(Path(folder) / "run", fmt)
        for commit in commits:
            plain.commit(commit)
        want, cursors, _ = followed(plain.dir)
        play = Play(run, commits, how)
        for _ in range(head):
            play.step()

        def place(cursor: dict[str, Any]) -> tuple[int, int]:
            """Return the place of a cursor in the run without merges, whose commits have other
            numbers."""
            return sorted(run.commits).index(cursor["seq"]) + 1, cursor["groups"]

        follow = Following(run.dir, interval=0, idle=play.step)
        later: Following | None = None
        got, rest = [], []
        for found in follow.complete():
            if len(got) == second:
                later = Following(run.dir, after=follow.cursor)
            play.step()  # between the commit and the reading of its rows
            got.append((described(follow.read(found)), place(follow.cursor)))
            if later is not None and (group := later.poll()):
                rest.append((described(group), place(later.cursor)))
        while later is not None and (group := later.poll()):
            rest.append((described(group), place(later.cursor)))
        assert got == [(group, (c["seq"], c["groups"])) for group, c in zip(want, cursors, strict=True)]
        assert rest == got[second + 1 :]


def small(run: Run, commits: int) -> None:
    """Commit groups of two samples, with 2 to 6 tokens per row."""
    for g in range(commits):
        run.commit([Sample(f"g{g:02}", i, [2 + (g + i) % 5], 2) for i in range(2)])


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("fmt", ["parquet", "arrow"])
def test_an_epoch_goes_on_after_merges(tmp_path: Path, fmt: str, workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr(stream, "BLOCK_TOKENS", 30)
    run = Run(tmp_path / "run", fmt, block=100)
    small(run, 40)
    run.block = 7

    def loader(rank: int) -> rollout.DataLoader:
        return rollout.DataLoader(rollout.Dataset(run.dir).batches(2, seed=3, rank=rank, world_size=2), num_workers=workers)

    whole = [[[described(g) for g in b] for b in loader(rank)] for rank in range(2)]
    loaders = [loader(rank) for rank in range(2)]
    given = [iter(x) for x in loaders]
    got: list[list[Any]] = [[], []]
    states = []
    plans: list[Callable[[], None]] = [
        lambda: run.merge(range(1, 13), 15),
        lambda: run.finish(delete=False),
        lambda: run.merge([n for n in run.counting() if 13 <= n <= 25]),
        run.finish,
        lambda: run.merge(run.counting()[:2]),
        lambda: run.merge(run.counting()),
    ]
    for batch in range(10):
        if batch and plans:
            plans.pop(0)()
        for rank in range(2):
            got[rank].append([described(g) for g in next(given[rank])])
        states.append([x.state_dict() for x in loaders])
    assert got == whole and all(next(g, None) is None for g in given)
    assert len(run.counting()) == 1 and states[4][0]["settings"]["lanes"] == (1 if fmt == "arrow" else 2)
    for n in (0, 4, 7):
        for rank in range(2):
            again = loader(rank)
            again.load_state_dict(json.loads(json.dumps(states[n][rank])))
            assert [[described(g) for g in b] for b in again] == whole[rank][n + 1 :]


def test_a_shard_is_found_although_its_merge_is_merged_during_the_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(tmp_path / "run")
    small(run, 6)
    (shard, *_) = log.shards(run.dir)
    run.merge([1, 2, 3])
    run.finish()
    listed, plans = os.listdir, [lambda: run.merge(run.counting()), run.finish]

    def listdir(path: Any) -> list[str]:
        names = listed(path)
        while plans and str(path).endswith("_commits"):
            plans.pop(0)()
        return names

    monkeypatch.setattr(os, "listdir", listdir)
    found, begin = log.find(shard)
    assert begin == 0 and os.path.exists(found.path) and found.merged and not plans


def test_batches_of_a_followed_run_go_on_after_merges(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    small(run, 12)
    run.plan(24)

    def loader() -> rollout.DataLoader:
        return rollout.DataLoader(rollout.Dataset(run.dir, follow=True).batches(2, rank=0, world_size=1))

    whole = [[g.id for g in b] for b in loader()]
    first = loader()
    given = iter(first)
    got = [[g.id for g in next(given)] for _ in range(2)]
    state = first.state_dict()
    run.merge(range(1, 9))
    assert got + [[g.id for g in b] for b in given] == whole
    again = loader()
    again.load_state_dict(state)
    assert [[g.id for g in b] for b in again] == whole[2:]


def test_a_run_that_tasks_come_to_ends_with_its_report(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    run.plan(100)  # planned at the start; the final number was unknown
    info = json.loads((run.dir / "run.json").read_text())
    info["tasks"]["stream"] = True
    (run.dir / "run.json").write_text(json.dumps(info))
    report = {"run_id": "r", "state": "interrupted", "written_at": "2026-01-01T00:00:09.5Z", "coverage": {"planned": 100, "unstarted": 0}}

    def idle(_: float) -> None:
        if run.seq < 2:
            run.commit([Sample(f"g{run.seq}", i, [3], 2) for i in range(2)])
        elif report["state"] == "interrupted":
            (run.dir / "report.json").write_text(json.dumps(report))
            report["state"] = "complete"
        elif run.seq < 3:
            run.commit([Sample("last", 0, [3], 1)])
            (run.dir / "report.json").write_text(json.dumps(report))

    assert [g.id for g in Following(run.dir, interval=0, idle=idle, timeout=2)] == ["g0", "g1", "last"]


def test_poll_gives_what_is_there(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    follow = Following(run.dir, where=Where(max_tokens=5))
    assert follow.poll() is None and follow.cursor == {"run_id": "", "seq": 0, "groups": 0, "scores": "collected"}
    run.commit([Sample("a", 0, [3], 1), Sample("b", 0, [9], 1), Sample("c", 0, [3], 2), Sample("d", 0, [3], 1), Sample("e", 0, [9], 1)])
    run.commit([Sample("c", 1, [3], 2)])
    got = []
    while (group := follow.poll()) is not None:
        got.append((group.id, follow.cursor["seq"], follow.cursor["groups"]))
    assert got == [("a", 1, 1), ("d", 1, 3), ("c", 2, 1)]  # dropped groups count
    assert follow.counts["no_rows"]["groups"] == 2
    run.commit([Sample("f", 0, [9], 1)])
    assert follow.poll() is None and follow.cursor == {"run_id": "r", "seq": 3, "groups": 1, "scores": "collected"}  # it counts as returned


def test_wake_ends_a_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollout.runs.follow.GLANCE", 1000)
    run = Run(tmp_path / "run")
    run.plan(1)
    waits = threading.Event()
    follow = Following(run.dir, interval=1000, idle=lambda _: waits.set())
    got: list[str] = []
    reader = threading.Thread(target=lambda: got.extend(g.id for g in follow), daemon=True)
    reader.start()
    assert waits.wait(60)
    run.commit([Sample("a", 0, [3], 1)])
    follow.wake()
    reader.join(60)
    assert got == ["a"]


@pytest.mark.parametrize(
    ("after", "says"),
    [
        ({"run_id": "other", "seq": 1, "groups": 1}, "contains run 'r', but the state is from run 'other'"),
        ({"run_id": "r", "seq": 3, "groups": 1}, "the log ends with commit 2, but the cursor is in commit 3"),
        ({"run_id": "r", "seq": 1, "groups": 2}, "the cursor is after group 2 of commit 1, but that commit completes only 1"),
        ({"run_id": "r", "seq": 1}, "not a cursor"),
        ({"run_id": "r", "seq": -1, "groups": 0}, "must be ≥ 0"),
        ({"run_id": "r", "seq": "1", "groups": 0}, "not a cursor"),
        ({"run_id": "r", "seq": 1.5, "groups": 0}, "not a cursor"),
    ],
)
def test_a_cursor_that_cannot_be(tmp_path: Path, after: Any, says: str) -> None:
    run = Run(tmp_path / "run")
    small(run, 2)
    run.plan(4)
    with pytest.raises(rollout.StateError, match=says):
        list(Following(run.dir, after=after))
    for fits in ({"run_id": "r", "seq": 3, "groups": 0}, {"run_id": "r", "seq": 2, "groups": 1}):
        assert list(Following(run.dir, after=fits)) == []


@pytest.mark.parametrize("check", ["sha256", "size"])
@pytest.mark.parametrize("fmt", ["parquet", "arrow"])
def test_shards_are_found_where_they_are(tmp_path: Path, fmt: str, check: Any) -> None:
    run = Run(tmp_path / "run", fmt)
    small(run, 20)
    shards = log.shards(run.dir)
    want = [[r["sample_key"] for r in log.rows(s)] for s in shards]
    for step in (lambda: run.merge(range(1, 9), 30), run.finish, lambda: run.merge([9, 10, 11]), lambda: run.merge(run.counting())):
        step()
        assert [[r["sample_key"] for r in log.rows(s, check=check)] for s in shards] == want
        for s in shards:
            log.check_shard(s, check)
    (left,) = (run.dir / "data").iterdir()
    left.unlink()
    with pytest.raises(rollout.CorruptError, match="the file is missing, although the commit log lists it"):
        log.check_shard(shards[3])


def test_readers_while_a_run_is_merged(tmp_path: Path) -> None:
    """Datasets are opened and read while another thread commits, merges and deletes."""
    run = Run(tmp_path / "run")
    run.plan(200)
    end = threading.Event()
    errors: list[BaseException] = []

    def write() -> None:
        try:
            for g in range(100):
                run.commit([Sample(f"g{g:02}", i, [3], 2) for i in range(2)])
                if g % 5 == 4:
                    run.merge(run.counting()[-5 if g % 25 < 24 else -9 :])
        except BaseException as err:
            errors.append(err)
        end.set()

    writer = threading.Thread(target=write)
    writer.start()
    got: list[str] = []
    follower = threading.Thread(target=lambda: got.extend(g.id for g in Following(run.dir, interval=0.01)))
    follower.start()
    last, n = 0, 0
    while not end.is_set() or n == 0:
        n += 1
        ds = rollout.Dataset(run.dir)
        ids = [g.id for g in ds]
        assert ids == [f"g{g:02}" for g in range(len(ids))] and len(ids) == ds.snapshot[0]["seq"] - (len(ids) and extra(run, ds)) >= last
        last = len(ids)
    writer.join()
    follower.join(60)
    assert not errors, errors
    assert got == [f"g{g:02}" for g in range(100)]


def extra(run: Run, ds: rollout.Dataset) -> int:
    """Return how many of the numbers up to the dataset's last commit belong to merges."""
    return sum(1 for n in run.merges if n < ds.snapshot[0]["seq"])
