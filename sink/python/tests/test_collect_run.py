"""collect() with the real program: when rows come, what is held back, what a kill leaves."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import MODEL
from looping import once
from waiting import PATIENCE, wait_for

import rollout

LOOPING = Path(__file__).parent / "looping.py"

KILLS = tuple(int(n) for n in os.environ.get("COLLECT_KILLS", "5,3").split(","))
"""The number of kills of the collector and of the trainer: COLLECT_KILLS=20,10 is the long
form."""

STOPPED = float(os.environ.get("COLLECT_STOPPED", "1"))
"""Seconds during which a trainer requests no group: COLLECT_STOPPED=60 is the long form."""

Server = tuple[str, Path]


@pytest.fixture(scope="module")
def server(simulator: Callable[..., Server]) -> Server:
    return simulator("--input-ids", "--scripted", "60", "--drift", "0.3", "--wrong", "0.3", "--latency", "5ms..30ms")


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def config(server: Server) -> dict[str, Any]:
    return {"server": {"urls": [server[0]]}, "agent": {"model": MODEL}, "reward": {"kind": "number"}}


def test_rows_come_before_the_tasks_end(server: Server, tmp_path: Path, run_program: Callable[..., str]) -> None:
    got: list[rollout.Group] = []

    def tasks() -> Iterator[dict[str, Any]]:
        for i, task in enumerate(lines(server[1])[:12]):
            if i > 3:
                wait_for(lambda: len(got) >= i - 3)
            yield task

    with rollout.collect(config(server), tasks(), out=tmp_path / "run", samples=4, timeout=PATIENCE) as c:
        for group in c:
            got.append(group)
            c.set_version(len(got))
        assert c.restarts == 0
    ds = rollout.Dataset(tmp_path / "run")
    assert len(got) == len({g.id for g in got}) == len(ds) == 12
    for group in got:
        same = ds.group(group.id)
        for a, b in zip(group.rows, same.rows, strict=True):
            assert all(np.array_equal(a[k], b[k]) for k in ("input_ids", "loss_mask", "logprobs", "sample_key", "reward"))
    run_program("verify", tmp_path / "run")


def test_a_trainer_that_stops_holds_max_ahead_groups(server: Server, tmp_path: Path) -> None:
    with rollout.collect(config(server), server[1], out=tmp_path / "run", samples=2, max_ahead=3, timeout=PATIENCE) as c:
        next(c)
        wait_for(lambda: c.status()["groups"]["whole"] == 3 and c.status()["in_flight"] == 0)
        before = c.status()
        memory = resident(before["pid"])
        time.sleep(STOPPED)
        still = c.status()
        assert still["groups"]["ahead"] == still["groups"]["begun"] == 3 and still["in_flight"] == 0
        assert still["planned"] == before["planned"] <= 4 * 2 and still["committed"] == before["committed"]
        grown = resident(before["pid"]) - memory
        print(f"stopped for {STOPPED:g} s: {memory >> 20} MiB, and {grown >> 10} KiB more after it")
        assert grown < 16 << 20
        for _ in range(5):
            next(c)
            assert c.status()["groups"]["ahead"] <= 3


def test_groups_that_filters_leave_out_are_not_held(server: Server, tmp_path: Path) -> None:
    """With two samples, half of the groups have equal rewards: the collector counts them as
    given."""
    where = rollout.Where(reward_variance=True)
    with rollout.collect(config(server), server[1], out=tmp_path / "run", samples=2, max_ahead=3, ack="manual", where=where, timeout=PATIENCE) as c:
        for _ in range(3):
            groups = [next(c) for _ in range(3)]
            assert all(len({r["reward"] for r in g.rows}) > 1 for g in groups)
            c.ack()
        assert c.counts["reward_variance"]["groups"] > 3


def resident(pid: int) -> int:
    """Return a process's memory in bytes, or 0 if unknown."""
    path = Path(f"/proc/{pid}/statm")
    return int(path.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if path.exists() else 0


def test_many_groups_that_nobody_has_acknowledged(server: Server, tmp_path: Path) -> None:
    # The process reports each of them before it answers, and its pipe holds about two hundred.
    task, n = lines(server[1])[0], 400
    tasks = [{**task, "id": str(i)} for i in range(n)]
    with rollout.collect(config(server), tasks, out=tmp_path / "run", samples=1, ack="manual", timeout=PATIENCE) as c:
        assert len(list(c)) == n
    with rollout.collect(config(server), tasks, out=tmp_path / "run", samples=1, timeout=PATIENCE) as c:
        c.set_version(1)
        assert len(list(c)) == n and c.restarts == 0


def test_kills_lose_and_repeat_nothing(server: Server, tmp_path: Path, run_program: Callable[..., str]) -> None:
    seed = int(os.environ.get("COLLECT_SEED", time.time_ns() % 10_000))
    print(f"COLLECT_SEED={seed} COLLECT_KILLS={KILLS[0]},{KILLS[1]}")
    known = lines(server[1])
    tasks = [{**known[i % len(known)], "id": str(i)} for i in range(10 * sum(KILLS))]
    (tmp_path / "tasks.jsonl").write_text("\n".join(map(json.dumps, tasks)))
    trained, restarts = loop(tmp_path, server, KILLS, random.Random(seed), None)
    assert once(trained, len(tasks)) == [], f"seed {seed}"
    assert restarts >= KILLS[1]
    assert {g.id for g in rollout.Dataset(tmp_path / "run")} == set(trained)
    run_program("verify", tmp_path / "run")


@pytest.mark.parametrize("plant", ["double", "lost"])
def test_a_faulty_trainer_is_seen(server: Server, tmp_path: Path, plant: str) -> None:
    (tmp_path / "tasks.jsonl").write_text("\n".join(server[1].read_text().splitlines()[:20]))
    trained, _ = loop(tmp_path, server, (0, 1), random.Random(7), plant)
    assert any(("times" if plant == "double" else "groups were trained") in fault for fault in once(trained, 20))


def loop(folder: Path, server: Server, kills: tuple[int, ...], rng: random.Random, plant: str | None) -> tuple[list[str], int]:
    """Train all tasks while processes are killed, and return what the last checkpoint contains."""
    wishes = {"config": config(server), "samples": 2, "max_ahead": 4, "restarts": 50}
    env = {**os.environ, **({"PLANT": plant} if plant else {})}
    left, starts = list(kills), 0
    with open(folder / "trainer.err", "wb") as err:
        while not (folder / "done").exists():
            (folder / "begun").unlink(missing_ok=True)
            trainer = subprocess.Popen([sys.executable, LOOPING, folder, json.dumps(wishes)], env=env, stderr=err)
            starts += 1
            assert starts < 60
            try:
                while trainer.poll() is None:
                    wait_for(lambda: (folder / "begun").exists() or trainer.poll() is not None)
                    time.sleep(rng.uniform(0.05, 0.5))
                    which = rng.choices((0, 1), left)[0] if sum(left) else None
                    if which == 0:
                        pid = collector_of(folder / "run")
                        if pid is None:
                            continue
                        try:
                            os.kill(pid, signal.SIGKILL)
                        except ProcessLookupError:
                            continue
                    elif which == 1 and trained_by(folder) > 3:
                        trainer.kill()
                        trainer.wait()
                        if (folder / "done").exists():
                            break
                    else:
                        continue
                    left[which] -= 1
                assert trainer.wait() in (0, -signal.SIGKILL), (folder / "trainer.err").read_text()[-3000:]
            finally:
                trainer.kill()
                trainer.wait()
    assert plant or sum(left) == 0, f"the tasks ended before the kills: {left} are left"
    return json.loads((folder / "checkpoint.json").read_text())["trained"], starts - 1


def trained_by(folder: Path) -> int:
    path = folder / "checkpoint.json"
    return len(json.loads(path.read_text())["trained"]) if path.exists() else 0


def collector_of(run: Path) -> int | None:
    """Return the process that holds the lock of a run."""
    try:
        return int(json.loads((run / "lock").read_text())["pid"])
    except (OSError, ValueError, KeyError):
        return None


def test_errors_of_the_program(server: Server, tmp_path: Path) -> None:
    good = lines(server[1])[:1]
    cases: list[tuple[type[Exception], str, dict[str, Any], Any]] = [
        (rollout.UsageError, "reward.kind", {"flags": ["--reward=magic"]}, good),
        (rollout.ServerError, "hint: ", {"server": "http://127.0.0.1:9"}, good),
        (rollout.ServerError, "no/such/model", {"model": "no/such/model"}, good),
        (rollout.UsageError, "task x: ", {}, [{"id": "x", "promt": "p"}]),
        (rollout.UsageError, "task 1: ", {}, [*good[:0], {"prompt": 7}]),
    ]
    for i, (kind, text, options, tasks) in enumerate(cases):
        with rollout.collect(config(server), tasks, out=tmp_path / f"run{i}", timeout=PATIENCE, **options) as c, pytest.raises(kind) as caught:
            next(c)
        assert text in str(caught.value), (i, str(caught.value))
    (tmp_path / "other").mkdir()
    (tmp_path / "other/mine.txt").touch()
    with rollout.collect(config(server), good, out=tmp_path / "other", timeout=PATIENCE) as c, pytest.raises(rollout.FolderError):
        next(c)


def hidden_in(folder: Path) -> int:
    """Assert that no file below folder contains a secret of the test, and return the number of
    files read.

    A run renames and removes files while it collects, so a file that is gone when it is opened
    is ignored.
    """
    read = 0
    for at, _, names in os.walk(folder):
        for path in (Path(at, name) for name in names):
            try:
                body = path.read_bytes() if path.is_file() else b""
            except FileNotFoundError:
                continue
            assert not any(word in body for word in (b"sesame", b"also hidden", b"hidden too")), path
            read += 1
    return read


def test_a_password_is_in_no_file(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    settings = config(server)
    settings["server"] |= {"password": "open sesame", "headers": {"X-Key": "also hidden"}}
    settings["agent"]["create"] = {"secrets": {"KEY": "hidden too"}}
    with rollout.collect(settings, lines(server[1])[:2], out=tmp_path / "run", timeout=PATIENCE) as c:
        next(c)
        hidden_in(tmp_path)
        if (pid := c.status().get("pid")) is not None:  # a run of two samples might have ended by now
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                assert b"sesame" not in Path(f"/proc/{pid}/cmdline").read_bytes()
        list(c)
    assert hidden_in(tmp_path) > 3  # at least the run's own files, none of which still changes


def test_a_folder_with_a_long_path(server: Server, tmp_path: Path) -> None:
    out = tmp_path / ("long" * 40) / ("path" * 40) / "run"
    out.parent.mkdir(parents=True)
    assert len(str(out)) > 300
    with rollout.collect(config(server), lines(server[1])[:3], out=out, timeout=PATIENCE) as c:
        c.set_version(4)
        assert len(list(c)) == 3
        assert c.status() == {"phase": "ended"}


def test_tasks_that_run_out_before_until_groups(server: Server, tmp_path: Path) -> None:
    groups = []
    with (
        pytest.raises(rollout.ToleranceError, match="ran out of tasks before reaching --until-groups 9: 3 of 3 started groups are whole") as error,
        rollout.collect(config(server), lines(server[1])[:3], out=tmp_path / "run", samples=2, until_groups=9, timeout=PATIENCE) as c,
    ):
        for group in c:
            groups.append(group)  # all of them come before the error
    assert len(groups) == 3 and "add tasks with" in error.value.hint


def test_until_groups_ends_the_iteration(server: Server, tmp_path: Path) -> None:
    taken: list[int] = []

    def endless() -> Iterator[dict[str, Any]]:
        for i, task in enumerate(lines(server[1])):
            taken.append(i)
            yield task

    with rollout.collect(config(server), endless(), out=tmp_path / "run", samples=4, max_ahead=4, until_groups=5, min_std=0.01, timeout=PATIENCE) as c:
        groups = list(c)
    for group in groups:
        assert len({r["reward"] for r in group.rows}) > 1
    assert len(groups) >= 5 and len(taken) < 60
