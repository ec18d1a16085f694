"""Fixtures of all tests: the real program, simulated servers, and runs collected from them.
Every process that a fixture starts is stopped, whatever a test does.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from waiting import PATIENCE

import rollout as package
from rollout.collecting import collect as collecting

MODEL = "sglang//models/qwen3"
"""The handle of the model that a simulated server has."""



def pytest_configure() -> None:
    # Without this, SIGTERM would leave the servers running.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    # The URL of a bucket without an endpoint leads nowhere, not to a public host.
    os.environ["AWS_ENDPOINT_URL"] = "http://127.0.0.1:1"


def stop(process: subprocess.Popen[bytes]) -> None:
    """Kill a process, which might have ended, and wait for it."""
    process.kill()
    process.wait()


@pytest.fixture(scope="session")
def rollout() -> str:
    """The path of the program."""
    return package.program()


@pytest.fixture(scope="session")
def environment() -> dict[str, str]:
    """The environment for the program: this one without settings of rollout."""
    return {k: v for k, v in os.environ.items() if not k.startswith("ROLLOUT_")}


@pytest.fixture(scope="session")
def run_program(rollout: str, environment: dict[str, str]) -> Callable[..., str]:
    """run_program(*args, status=0) runs the program to its end and returns its output.

    status is the required exit status, or several allowed ones; cwd and env are as in
    subprocess.
    """

    def run(
        *args: str | Path,
        status: int | Sequence[int] = 0,
        cwd: Path | None = None,
        env: dict[str, str] | None = None,
    ) -> str:
        command = [rollout, *map(str, args)]
        done = subprocess.run(command, cwd=cwd, env=env or environment, capture_output=True, text=True)
        allowed = [status] if isinstance(status, int) else status
        assert done.returncode in allowed, (
            f"{' '.join(command)}: exit status {done.returncode}, want {status}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        )
        return done.stdout

    return run


@pytest.fixture
def start(rollout: str, environment: dict[str, str], tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """start(*args, **popen) starts the program and returns its process, for a test that kills
    or watches it. The process is killed at the end of the test.

    Its standard error goes to the file started-N.err of tmp_path.
    """
    started: list[subprocess.Popen[bytes]] = []

    def begin(*args: str | Path, **popen: object) -> subprocess.Popen[bytes]:
        with open(tmp_path / f"started-{len(started)}.err", "wb") as err:
            options: dict[str, object] = {"env": environment, "stdout": subprocess.DEVNULL, "stderr": err, **popen}
            started.append(subprocess.Popen([rollout, *map(str, args)], **options))  # type: ignore[call-overload]
        return started[-1]

    yield begin
    for process in started:
        stop(process)


@pytest.fixture(scope="session")
def simulator(
    rollout: str, environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., tuple[str, Path]]]:
    """simulator(*flags) starts `rollout simulate` with the flags on a free port. It returns the
    URL and the file of the tasks that it answers (from --scripted N and --exchanges DIR;
    otherwise empty). It runs until all tests have ended.
    """
    started: list[subprocess.Popen[bytes]] = []

    def begin(*flags: str | Path) -> tuple[str, Path]:
        folder = tmp_path_factory.mktemp("server")
        ready, tasks, log = folder / "ready", folder / "tasks.jsonl", folder / "log"
        command: list[str | Path] = [rollout, "simulate", "--listen", "127.0.0.1:0", "--ready-file", ready]
        if "--serve-engine" not in flags:
            command += ["--write-tasks", tasks]
        with open(log, "wb") as out:
            process = subprocess.Popen([*map(str, command), *map(str, flags)], env=environment, stdout=out, stderr=out)
        started.append(process)
        end = time.monotonic() + PATIENCE
        while not ready.exists():  # it is created atomically
            if process.poll() is not None or time.monotonic() > end:
                pytest.fail(f"{command}: no server: exit status {process.poll()}\n{log.read_text()}")
            time.sleep(0.01)
        return ready.read_text().strip(), tasks

    yield begin
    for process in started:
        stop(process)


@pytest.fixture(scope="session")
def engine(simulator: Callable[..., tuple[str, Path]]) -> str:
    """The URL of a simulated vLLM."""
    return simulator("--serve-engine", "vllm")[0]


@pytest.fixture
def tap(start: Callable[..., subprocess.Popen[bytes]], engine: str, tmp_path: Path) -> Callable[..., str]:
    """tap(*flags) starts a tap with sessions, and returns its URL. Without --engine in the flags, its
    engine is the simulated one. Its spool is the folder spool of tmp_path."""

    def begin(*flags: str | Path) -> str:
        ready = tmp_path / "tap.url"
        given = flags if "--engine" in flags else ("--engine", engine, *flags)
        process = start("tap", "--sessions", "--listen", "127.0.0.1:0", "--ready-file", ready, "--spool", tmp_path / "spool", *given)
        end = time.monotonic() + PATIENCE
        while not ready.exists():  # it is created atomically
            if process.poll() is not None or time.monotonic() > end:
                pytest.fail(f"no tap: exit status {process.poll()}")
            time.sleep(0.01)
        return ready.read_text().strip()

    return begin


@pytest.fixture(scope="session")
def delegated(engine: str, run_program: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> list[package.Group]:
    """Groups of a harness with a subagent: four tasks with three samples each. The rewards differ."""
    folder = tmp_path_factory.mktemp("delegated")
    tasks = [{"id": f"t{n}", "prompt": f"Write two notes. [script:harness seed={n} subagent]", "answer": "42"} for n in range(4)]
    (folder / "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
    settings = {
        "harness": {
            "command": [sys.executable, str(Path(__file__).parent / "subagents.py"), "{prompt}"],
            "env": {"OPENAI_BASE_URL": "{base_url}/v1", "OPENAI_API_KEY": "{key}"},
        },
        "engine": [engine],
        "reward": {"kind": "command", "command": ["sh", "-c", 'n=0; while read -r line; do n=$((n + 1)); echo "{\\"reward\\": $n}"; done']},
    }
    (folder / "run.json").write_text(json.dumps(settings))
    run_program("collect", "--quiet", "-c", folder / "run.json", "--tasks", folder / "tasks.jsonl", "--samples", "3", "--out", folder / "run")
    return list(package.Dataset(folder / "run"))


@pytest.fixture(scope="session")
def collect(
    run_program: Callable[..., str], simulator: Callable[..., tuple[str, Path]], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Path]:
    """collect(*flags) collects a run and returns its folder.

    Without --server in the flags, a server is started with the flags in simulate (default:
    eight scripted tasks, with prompts from the server). status is the allowed exit status; 3
    and 4 are runs with failed samples.
    """

    def run(
        *flags: str | Path,
        simulate: Sequence[str | Path] = ("--input-ids", "--scripted", "8"),
        status: int | Sequence[int] = 0,
    ) -> Path:
        given = [str(f) for f in flags]
        names = {f.partition("=")[0] for f in given}
        if "--server" not in names:
            url, tasks = simulator(*simulate)
            given += ["--server", url]
            if "--tasks" not in names:
                given += ["--tasks", str(tasks)]
        if "--model" not in names:
            given += ["--model", MODEL]
        if "--out" in names:
            folder = Path(given[given.index("--out") + 1])
        else:
            folder = tmp_path_factory.mktemp("collected") / "run1"
            given += ["--out", str(folder)]
        run_program("collect", "--quiet", *given, status=status)
        return folder

    return run


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., package.Collection]]:
    """stand_in(tasks, standin={…}, **options) collects with the stand-in into tmp_path/run."""
    script = tmp_path / "rollout"
    script.write_text(f"#!/bin/sh\nexec {sys.executable} {Path(__file__).parent / 'standin.py'} \"$@\"\n")
    script.chmod(0o755)
    monkeypatch.setattr(collecting, "program", lambda: str(script))
    made: list[package.Collection] = []

    def start(tasks: Any = None, standin: dict[str, Any] | None = None, **options: Any) -> package.Collection:
        monkeypatch.setenv("STANDIN", json.dumps(standin or {}))
        options = {"out": tmp_path / "run", "timeout": PATIENCE, **options}
        made.append(package.collect(options.pop("config", None), tasks, **options))
        return made[-1]

    yield start
    for c in made:
        c.close()
