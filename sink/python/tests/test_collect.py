"""How collect() supervises its process: crashes, ends, errors, signals, forks.

The process is a stand-in, standin.py, that ends as configured. The real program is in
test_collect_run.py.
"""

from __future__ import annotations

import asyncio
import json
import pickle
import re
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from waiting import PATIENCE, heard, prompts, wait_for

import rollout
from rollout.collecting._settings import is_secret, settings
from rollout.runs.cursor import acknowledge


ROOT = Path(__file__).resolve().parents[3]


def test_groups_come_once_and_in_order(stand_in: Callable[..., rollout.Collection], tmp_path: Path) -> None:
    with stand_in(prompts(5), max_ahead=2) as c:
        assert [g.id for g in c] == ["g1", "g2", "g3", "g4", "g5"]
        assert c.state_dict() == {"run_id": "r", "seq": 5, "groups": 1}
        assert list(c) == []
    assert json.loads((tmp_path / "run/ack.json").read_text())["seq"] == 5
    with pytest.raises(ValueError, match="the collection is closed"):
        next(c)
    c.close()


def test_async_iteration_and_async_tasks(stand_in: Callable[..., rollout.Collection]) -> None:
    given: list[int] = []

    async def tasks() -> AsyncIterator[dict[str, Any]]:
        for i in range(6):
            given.append(i)
            await asyncio.sleep(0)
            yield {"prompt": "p"}

    async def main() -> list[str]:
        out = []
        async with stand_in(tasks(), max_ahead=1) as c:
            with pytest.raises(TypeError, match="async for"):
                next(c)
            async for group in c:
                out.append(group.id)
                assert len(given) <= len(out) + 3  # one that waits, and one that is requested next
        return out

    assert asyncio.run(main()) == [f"g{i}" for i in range(1, 7)]


def test_a_cancelled_wait_loses_nothing(stand_in: Callable[..., rollout.Collection]) -> None:
    async def main() -> list[str]:
        out: list[str] = []
        async with stand_in(None) as c:
            for i in range(20):
                task = asyncio.ensure_future(anext(c))
                c.add({"id": str(i), "prompt": "p"})
                await asyncio.sleep(0.002 * (i % 7))
                task.cancel()
                try:
                    out.append((await task).id)
                except asyncio.CancelledError:
                    pass
            while len(out) < 20:
                out.append((await anext(c)).id)
        assert len(asyncio.all_tasks()) == 1
        return out

    assert asyncio.run(main()) == [f"g{i}" for i in range(20)]
    assert not [t for t in threading.enumerate() if t.name.startswith("rollout-")]


def test_a_killed_collector_goes_on(stand_in: Callable[..., rollout.Collection], tmp_path: Path) -> None:
    with stand_in(prompts(9), standin={"kill": 2}, max_ahead=3, restarts=1) as c:
        c.set_version(3)
        got = []
        for group in c:
            got.append(group.id)
            c.set_version(len(got))
    assert got == [f"g{i}" for i in range(1, 10)] and c.restarts == 4
    starts = heard(tmp_path / "run", "start")
    assert len(starts) == 5 and "--resume" in starts[0]["args"]
    assert not any(a.startswith("--policy-version") for s in starts for a in s["args"]), "a newer one may be said meanwhile"


def test_a_collector_that_always_crashes_is_an_error(stand_in: Callable[..., rollout.Collection]) -> None:
    c = stand_in(prompts(1), standin={"exit": [2, "panic: index out of range\ngoroutine 1"]}, restarts=2)
    with pytest.raises(rollout.CrashError, match="crashed .exit status 2.(.|\n)*panic: index out of range") as caught:
        next(c)
    assert c.restarts == 2 and caught.value.code == 2
    with pytest.raises(rollout.CrashError):
        next(c)


@pytest.mark.parametrize(
    "status, kind",
    [
        (1, rollout.CollectError),
        (2, rollout.UsageError),
        (4, rollout.ToleranceError),
        (5, rollout.ServerError),
        (6, rollout.StorageError),
        (7, rollout.FolderError),
        (9, rollout.DamagedError),
        (9, rollout.CorruptError),
        (130, rollout.InterruptedRunError),
    ],
)
def test_an_exit_status_is_an_error(stand_in: Callable[..., rollout.Collection], status: int, kind: type[Exception]) -> None:
    config = {"server": {"password": "open sesame"}}
    c = stand_in(prompts(1), config=config, standin={"exit": [status, "rollout: no: open sesame\nhint: do that"]})
    with pytest.raises(kind) as caught:
        next(c)
    err = caught.value
    assert type(err).__mro__.index(kind) <= 2 and isinstance(err, rollout.CollectError)
    assert (err.code, err.hint) == (status, "do that")
    assert str(err) == f"rollout collect, exit status {status}: no: [hidden]\nhint: do that"
    again = pickle.loads(pickle.dumps(err))
    assert (type(again), str(again), again.code, again.lines) == (type(err), str(err), status, err.lines)


def test_secrets_of_a_dict_are_passed_in_the_environment() -> None:
    config = {
        "server": {"password": "hidden 1", "headers": {"X": "hidden 2"}, "urls": ["http://a", {"url": "http://b", "headers": {"Y": "hidden 3"}}]},
        "tokens": {"tap_token": "hidden 4", "policy_version": "http://host/?key=hidden5", "require": "exact"},
        "harness": {"env": {"API_KEY": "hidden 6", "db_password": "hidden 7", "KEY": "{key}", "OPENAI_API_KEY": "x {key}", "A_TOKEN": "${env:MINE}", "LEVEL": "3"}},
        "agent": {"create": {"secrets": {"K": "hidden 8"}}, "model": "m"},
    }
    before = json.dumps(config)
    made = settings(config, {}, [], None)
    assert made.body is not None and json.dumps(config) == before
    assert "hidden" not in made.body.decode()
    for number in range(1, 9):
        assert any(str(number) in secret for secret in made.secrets if secret.startswith(("hidden", "http"))), number
    used = json.loads(re.sub(r"\$\{env:(COLLECT_SECRET_\w+)\}", lambda found: made.env[found[1]], made.body.decode()))
    want = json.loads(before)
    assert json.loads(made.env["ROLLOUT_AGENT_CREATE"]) == want["agent"].pop("create")
    assert used == want
    for value in (None, 5, "x", [1], {"urls": "http://a"}, {"headers": 5, "password": None, "env": {"TOKEN": 5}}):  # the program reports what is wrong
        wrong = dict.fromkeys(("server", "tokens", "harness", "agent"), value)
        assert json.loads(settings(wrong, {}, [], None).body or b"") == wrong


def test_the_program_has_the_same_rule_for_secrets() -> None:
    listed = json.loads((ROOT / "collector/harness/testdata/secrets.json").read_text(encoding="utf-8"))
    for v in listed["variables"]:
        assert is_secret(v["name"], v["value"]) == v["secret"], v
    for placeholder in listed["placeholders"]:
        assert not is_secret("TOKEN", placeholder)
    shown = settings(None, {}, [], {"GITHUB_PAT": "hidden 1", "KEY_PASSPHRASE": "hidden 2", "LEVEL": "verbose"}).secrets
    assert shown == ["hidden 1", "hidden 2"]


def test_a_task_that_is_refused(stand_in: Callable[..., rollout.Collection]) -> None:
    given = threading.Event()

    def tasks() -> Iterator[dict[str, Any]]:
        yield {"prompt": "p"}
        given.wait(PATIENCE)
        yield {"id": "b", "text": "p"}

    c = stand_in(tasks())
    assert next(c).id == "g1"
    given.set()
    with pytest.raises(rollout.UsageError, match="task b: the task has no prompt\nhint: give it one"):
        next(c)


def test_an_error_of_the_tasks_is_raised(stand_in: Callable[..., rollout.Collection]) -> None:
    given = threading.Event()

    def tasks() -> Iterator[dict[str, Any]]:
        yield {"prompt": "p"}
        given.wait(PATIENCE)
        raise KeyError("mine")

    c = stand_in(tasks())
    assert next(c).id == "g1"
    given.set()
    with pytest.raises(KeyError, match="mine"):
        next(c)
    with pytest.raises(TypeError, match="a task must be a dict"):
        list(stand_in(["text"], out=c.run + "2"))
    with pytest.raises(TypeError, match="must be an iterable of dicts"):
        stand_in({"prompt": "p"})


def test_the_lock_is_waited_for(stand_in: Callable[..., rollout.Collection], tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = stand_in(None)
    first.status()
    with stand_in(prompts(1), lock_wait=0.5) as late, pytest.raises(rollout.LockedError, match="locked by another process"):
        next(late)
    assert late.restarts == 0 and late._supervisor.starts > 1
    threading.Timer(0.5, first.close).start()
    assert next(stand_in(prompts(1))).id == "g1"
    assert "another process is collecting into this folder" in caplog.text


def test_no_more_tasks_are_taken_than_can_begin(stand_in: Callable[..., rollout.Collection]) -> None:
    taken: list[int] = []

    def endless() -> Iterator[dict[str, Any]]:
        while True:
            taken.append(1)
            yield {"prompt": "p"}

    with stand_in(endless(), max_ahead=3) as c:
        for n in range(1, 6):
            next(c)
            wait_for(lambda: len(taken) >= n + 3)
            time.sleep(0.05)
            assert len(taken) <= n + 3  # n - 1 acknowledged, 3 started, 1 that waits
            assert c.status()["groups"]["ahead"] <= 3


def test_states(stand_in: Callable[..., rollout.Collection], tmp_path: Path) -> None:
    states = []
    with stand_in(prompts(6)) as c:
        states.append(c.state_dict())
        for _ in c:
            states.append(c.state_dict())
            if len(states) == 5:
                break
    # g4 was in the hands of a trainer that ended: without a state it comes again.
    with stand_in(prompts(6)) as c:
        assert [g.id for g in c] == ["g4", "g5", "g6"]
    for n, state in enumerate(states):
        with stand_in(prompts(6), state=state) as c:
            assert [g.id for g in c] == [f"g{i}" for i in range(n + 1, 7)]
    with stand_in(prompts(6)) as c:
        assert list(c) == []
        c.load_state_dict(states[2])
        assert [g.id for g in c] == ["g3", "g4", "g5", "g6"]


def test_states_of_another_run(stand_in: Callable[..., rollout.Collection], tmp_path: Path) -> None:
    run, other = tmp_path / "run", tmp_path / "other"
    with stand_in(prompts(3), ack="manual") as c:
        first, state = next(c), c.state_dict()
        assert len(list(c)) == 2
        c.ack(first)
    ack = {"run_id": "r", "seq": 1, "groups": 1}
    assert json.loads((run / "ack.json").read_text()) == ack
    bad = [
        ({"run_id": "other", "seq": 1, "groups": 1}, "contains run 'r', but the state is from run 'other'"),
        ({"run_id": "other", "seq": 3, "groups": 0}, "contains run 'r', but the state is from run 'other'"),
        ({"run_id": "r", "seq": 5, "groups": 0}, "the log ends with entry 3, but the state is in commit 5"),
        ({"run_id": "r", "seq": 4, "groups": 1}, "the log ends with entry 3, but the state is in commit 4"),
        ({"epoch": 1}, "is not a cursor: want"),
    ]
    for wrong, text in bad:
        with pytest.raises(rollout.StateError, match=text):
            stand_in(prompts(3), state=wrong)
    assert len(heard(run, "start")) == 1 and json.loads((run / "ack.json").read_text()) == ack
    with stand_in(prompts(3)) as c:
        c.status()
        for wrong, text in bad:
            with pytest.raises(rollout.StateError, match=text):
                c.load_state_dict(wrong)
        assert json.loads((run / "ack.json").read_text()) == ack
        assert [g.id for g in c] == ["g2", "g3"]
    for run_id, place in [("other", (9, 0)), ("r", (9, 0))]:
        with pytest.raises(rollout.StateError):
            acknowledge(str(run), run_id, place)
    with pytest.raises(rollout.StateError, match="the folder contains no run, but the state is from run 'r'"):
        stand_in(prompts(3), state=state, out=other)
    (run / "ack.json").write_text(json.dumps({"run_id": "other", "seq": 1, "groups": 0}))
    with pytest.raises(rollout.StateError, match="contains run 'r', but the cursor in ack.json is from run 'other'"):
        stand_in(prompts(3))
    assert not other.exists()


def test_manual_acknowledgement(stand_in: Callable[..., rollout.Collection], tmp_path: Path) -> None:
    c = stand_in(prompts(5), max_ahead=2, ack="manual")

    def none_comes() -> None:
        assert c.within(0.3) is None

    first, second = next(c), next(c)
    none_comes()
    c.ack(second)
    third = next(c)
    c.ack(first)  # already acknowledged: no effect
    assert next(c).id == "g4"
    none_comes()
    c.ack(third)
    assert next(c).id == "g5"
    c.ack()
    with pytest.raises(StopIteration):
        next(c)
    c.close()
    assert json.loads((tmp_path / "run/ack.json").read_text())["seq"] == 5


def test_waiting_ends(stand_in: Callable[..., rollout.Collection]) -> None:
    c = stand_in(None, timeout=0.2)
    with pytest.raises(TimeoutError, match="no group for 0.2 s"):
        next(c)

    async def main() -> None:
        with pytest.raises(TimeoutError, match="no group for 0.2 s"):
            await anext(c)

    asyncio.run(main())


def test_what_filters_leave_out_is_acknowledged(stand_in: Callable[..., rollout.Collection], tmp_path: Path) -> None:
    tasks = [{"prompt": "p", "answer": "" if i % 5 == 4 else "left out"} for i in range(11)]
    with stand_in(tasks, max_ahead=1) as c:
        assert [g.id for g in c] == ["g5", "g10"]
        assert c.counts["no_rows"]["groups"] == 9
    assert json.loads((tmp_path / "run/ack.json").read_text())["seq"] == 11


@pytest.mark.parametrize("standin", [{}, {"kill": 3}])
def test_what_filters_leave_out_behind_open_groups_lets_others_begin(
    stand_in: Callable[..., rollout.Collection], tmp_path: Path, standin: dict[str, Any]
) -> None:
    tasks = [{"prompt": "p", "answer": "" if i % 4 == 1 else "left out"} for i in range(18)]
    with stand_in(tasks, standin=standin, max_ahead=2, ack="manual", timeout=60, restarts=9) as c:
        assert [next(c).id for _ in range(2)] == ["g2", "g6"]
        assert c.within(0.3) is None, "two groups are in the trainer's hands"
        c.ack()
        assert [next(c).id for _ in range(2)] == ["g10", "g14"]
        c.ack()
        assert [g.id for g in c] == ["g18"]
        c.ack()
    assert json.loads((tmp_path / "run/ack.json").read_text())["seq"] == 18
    acks = heard(tmp_path / "run", "ack")
    assert {r.get("only") for r in acks} == {None, True} and all(r["run_id"] == "r" for r in acks), "the collector of another run would take them"


def test_what_was_said_is_said_again(stand_in: Callable[..., rollout.Collection], tmp_path: Path) -> None:
    c = stand_in(prompts(3), standin={"kill": 2, "starts": 1})
    c.pause()
    c.set_version(7)
    c.resume()
    assert [g.id for g in c] == ["g1", "g2", "g3"]
    run = tmp_path / "run"
    assert heard(run, "set-version")[-1]["version"] == 7 and len(heard(run, "drain")) >= 1
    assert [t["task"]["id"] for t in heard(run, "task")].count("3") >= 1
    c.close()
    with stand_in(None, out=tmp_path / "run2") as c:
        c.add({"id": "a", "prompt": "p"})
        assert next(c).id == "ga"
        c.drain()
        with pytest.raises(StopIteration):
            next(c)
        with pytest.raises(ValueError, match="no more tasks are accepted"):
            c.add({"prompt": "p"})
