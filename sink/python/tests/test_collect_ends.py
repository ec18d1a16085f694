"""How a collector that collect() started ends: with its owner, by signals, in forks, as
garbage."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from waiting import PATIENCE, alive, heard, prompts, wait_for

import rollout
from rollout.collecting import _child


@pytest.mark.parametrize("end", ["return", "sys.exit()", "os.kill(os.getpid(), signal.SIGKILL)", "os._exit(0)", "raise KeyboardInterrupt"])
def test_the_process_ends_with_its_owner(stand_in: Callable[..., rollout.Collection], tmp_path: Path, end: str) -> None:
    code = f"""
import os, signal, sys, rollout
from rollout.collecting import collect as collecting
collecting.program = lambda: {str(tmp_path / "rollout")!r}
def main():
    c = rollout.collect(out={str(tmp_path / "run")!r})
    c.add({{"prompt": "p"}})
    print(next(c).id, flush=True)
    {end}
main()
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as trainer:
        assert trainer.stdout and trainer.stdout.readline() == b"g1\n"
        pid = heard(tmp_path / "run", "start")[-1]["pid"]
        trainer.wait(PATIENCE)
        wait_for(lambda: not alive(pid))


def test_a_process_that_does_not_end_is_killed(stand_in: Callable[..., rollout.Collection], tmp_path: Path) -> None:
    c = stand_in(prompts(1), standin={"stuck": True}, grace=0.4)
    next(c)
    pid = heard(tmp_path / "run", "start")[-1]["pid"]
    c.close()
    assert not alive(pid)


@pytest.mark.parametrize("way", ["close", "aclose"])
def test_a_close_is_no_drain(stand_in: Callable[..., rollout.Collection], tmp_path: Path, way: str) -> None:
    """A trainer that stops can resume later: neither its run nor its pause has ended."""

    async def tasks() -> AsyncIterator[dict[str, Any]]:
        yield {"prompt": "p"}
        await asyncio.Event().wait()

    async def main() -> None:
        async with stand_in(tasks(), out=run) as c:
            assert (await anext(c)).id == "g1"

    for i in range(20):  # the thread that sends the message races with the one that ends the process
        run = tmp_path / f"run{i}"
        if way == "aclose":
            asyncio.run(main())
        else:
            with stand_in(None, out=run) as c:
                c.status()
        assert heard(run, "drain") == [], i


def test_a_close_that_is_cancelled(stand_in: Callable[..., rollout.Collection], tmp_path: Path) -> None:
    """The process ends even if the tasks are slow to end."""

    async def main() -> None:
        ending = asyncio.Event()

        async def tasks() -> AsyncIterator[dict[str, Any]]:
            yield {"prompt": "p"}
            try:
                await asyncio.Event().wait()
            finally:
                ending.set()
                await asyncio.Event().wait()

        c = stand_in(tasks())
        assert (await anext(c)).id == "g1"
        wanted = asyncio.create_task(anext(c))
        wait = asyncio.create_task(c.aclose())
        await ending.wait()
        wait.cancel()
        with pytest.raises(asyncio.CancelledError):
            await wait
        with pytest.raises(ValueError, match="the collection is closed"):
            await wanted

    asyncio.run(asyncio.wait_for(main(), PATIENCE))
    assert not alive(heard(tmp_path / "run", "start")[-1]["pid"])


def test_ctrl_c_reaches_the_trainer_alone(stand_in: Callable[..., rollout.Collection], tmp_path: Path) -> None:
    # If the tests were started in the background, SIGINT is ignored, and children inherit that.
    code = f"""
import signal
import rollout
from rollout.collecting import _child
from rollout.collecting import collect as collecting
signal.signal(signal.SIGINT, signal.default_int_handler)
collecting.program = lambda: {str(tmp_path / "rollout")!r}
with rollout.collect(None, None, out={str(tmp_path / "run")!r}) as c:
    c.status()
    print("here", flush=True)
    next(c)
"""
    stand_in(None, out=tmp_path / "other").close()
    trainer = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    assert trainer.stdout and trainer.stdout.readline() == b"here\n"
    pid = heard(tmp_path / "run", "start")[-1]["pid"]
    assert os.getpgid(pid) != os.getpgid(trainer.pid)
    os.killpg(trainer.pid, signal.SIGINT)
    _, err = trainer.communicate(timeout=PATIENCE)
    assert trainer.returncode in (-signal.SIGINT, 130) and err.endswith(b"KeyboardInterrupt\n")
    assert not alive(pid)


def test_forks_and_pickles_are_refused(stand_in: Callable[..., rollout.Collection]) -> None:
    c = stand_in(prompts(2))
    assert next(c).id == "g1"
    with pytest.raises(TypeError, match="cannot be pickled: it owns a process"):
        pickle.dumps(c)

    def child() -> None:
        with pytest.raises(RuntimeError, match="this process is a fork of it"):
            next(c)
        c.close()

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join()
    assert process.exitcode == 0
    assert next(c).id == "g2", "the fork has ended the collector of its parent"


def test_a_fork_does_not_keep_the_process_alive(stand_in: Callable[..., rollout.Collection], tmp_path: Path) -> None:
    c = stand_in()
    c.add({"prompt": "p"})
    next(c)
    pid = heard(tmp_path / "run", "start")[-1]["pid"]
    fork = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
    fork.start()
    try:
        child = c._supervisor._child
        assert child is not None
        child._let_go()  # as the end of this process does
        wait_for(lambda: not alive(pid) or child.process.poll() is not None)
    finally:
        fork.kill()
        fork.join()


def test_a_fork_while_the_process_starts_does_not_keep_it_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    starting, forked, popen = threading.Event(), threading.Event(), subprocess.Popen
    made: list[_child.Child] = []

    def begin(*args: Any, **options: Any) -> Any:
        starting.set()
        forked.wait(0.5)  # time for a fork that is not blocked
        return popen(*args, **options)

    monkeypatch.setattr(subprocess, "Popen", begin)
    maker = threading.Thread(target=lambda: made.append(_child.Child(["cat"], os.environ, [])))
    maker.start()
    assert starting.wait(PATIENCE)
    fork = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
    fork.start()
    try:
        forked.set()
        maker.join(PATIENCE)
        made[0]._let_go()
        wait_for(lambda: made[0].process.poll() is not None)
        assert list(made[0].events()) == [], "the fork has kept the other pipes"
    finally:
        fork.kill()
        fork.join()
        _child.stop(made, 0)


def test_it_works_in_a_thread_that_is_not_the_main_one(stand_in: Callable[..., rollout.Collection]) -> None:
    # As in an actor of Ray: nothing here can require the main thread.
    got: list[str] = []
    handlers = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)}

    def actor() -> None:
        async def main() -> None:
            async with stand_in(prompts(3)) as c:
                async for group in c:
                    got.append(group.id)

        asyncio.run(main())
        with stand_in(prompts(5)) as c:
            got.extend(g.id for g in c)

    thread = threading.Thread(target=actor)
    thread.start()
    thread.join(PATIENCE)
    assert got == [f"g{i}" for i in range(1, 6)]
    assert handlers == {s: signal.getsignal(s) for s in handlers}


def test_garbage_is_collected(stand_in: Callable[..., rollout.Collection], tmp_path: Path) -> None:
    stand_in(None, out=tmp_path / "other").close()  # sets the program
    c = rollout.collect(out=tmp_path / "run")
    c.add({"prompt": "p"})
    next(c)
    pid = heard(tmp_path / "run", "start")[-1]["pid"]
    del c
    gc.collect()
    assert not alive(pid)
