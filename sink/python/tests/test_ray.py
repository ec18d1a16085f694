"""rollout.ray on two nodes, with the real program: nodes die, and each group is trained on once.

Runs if Ray is installed: `make raytest` creates an environment with it.
"""

# ruff: noqa: F811 (the fixtures of test_bucket)
from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import MODEL
from test_bucket import KEYS, Bucket, bucket, server  # noqa: F401
from test_collect_run import config, lines
from test_docs import SERVER, programs
from waiting import PATIENCE, alive, wait_for

import rollout as package
from rollout.runs import _store as store

ray = pytest.importorskip("ray")
rr = pytest.importorskip("rollout.ray")

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(scope="module")
def cluster(server: str) -> Iterator[Any]:
    """Two nodes: one for the driver, with a place for a worker, and one of the kind "spot", with another."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "resources": {"place": 1}, "include_dashboard": False})
    ray.init(address=cluster.address, runtime_env={"env_vars": variables()}, logging_level="error")
    yield cluster
    ray.shutdown()
    cluster.shutdown()


def variables() -> dict[str, str]:
    """The environment variables that all processes of the cluster need."""
    folders = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    return {"PATH": os.environ["PATH"], "PYTHONPATH": folders.rstrip(os.pathsep), **KEYS}


def dead(node: Any) -> bool:
    """Report whether Ray has noticed the death of a node."""
    return node.node_id not in {n["NodeID"] for n in ray.nodes() if n["Alive"]}


@pytest.fixture
def spot(cluster: Any) -> Iterator[Callable[[], Any]]:
    """spot() adds a node of the kind "spot"."""
    nodes: list[Any] = []

    def add() -> Any:
        nodes.append(cluster.add_node(num_cpus=2, resources={"spot": 2, "place": 1}))
        return nodes[-1]

    yield add
    for node in nodes:
        if node in cluster.worker_nodes:
            cluster.remove_node(node, allow_graceful=False)
    for node in nodes:  # otherwise Ray can still place actors there
        wait_for(lambda: dead(node))


def holder(lock: Path) -> int:
    """Return the id of the process that has locked a spool, or 0 if there is none or the file is being written."""
    text = ""
    with contextlib.suppress(FileNotFoundError):
        text = lock.read_text()
    return int(json.loads(text)["pid"]) if text.endswith("}\n") else 0


def spools(url: str | Path, folder: Path, n: int) -> list[Path]:
    """Return the subfolders of n workers on one node."""
    fleet = store.fleet(url)
    assert fleet is not None
    return [folder / fleet.id / str(i) for i in range(n)]


def beats(fleet: Path) -> list[dict[str, Any]]:
    """Return the heartbeats of the workers."""
    return [json.loads(file.read_text()) for file in (fleet / "workers").glob("[!.]*.json")]


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_a_node_dies_while_a_trainer_consumes(
    cluster: Any, spot: Callable[[], Any], bucket: Bucket, simulator: Callable[..., tuple[str, Path]], tmp_path: Path, run_program: Callable[..., str]
) -> None:
    n, samples = 60, 2
    tasks = simulator("--input-ids", "--scripted", str(n), "--latency", "200ms..800ms")
    node = spot()
    out = bucket.new()
    how: dict[str, Any] = {"out": out, "samples": samples, "partitions": 12, "spool": tmp_path / "spool", "workers": 2, "timeout": PATIENCE}
    given = config(tasks)
    given["server"]["max_in_flight"] = 4
    trained: list[str] = []
    with rr.collect(given, tasks[1], resources={"place": 1}, **how) as groups:
        used = spools(out, tmp_path / "spool", 2)
        locks = [spool / "lock" for spool in used]
        for reference in groups:
            group = reference.get()
            assert group.id == reference.id and len(group.rows) == samples
            trained.append(group.id)
            if len(trained) == 5:
                wait_for(lambda: all(map(holder, locks)))
                before = [holder(lock) for lock in locks]
                cluster.remove_node(node, allow_graceful=False)
                wait_for(lambda: not all(map(alive, before)))
                (lost,) = (spool for spool, pid in zip(used, before, strict=True) if not alive(pid))
                shutil.rmtree(lost)  # the disk of the node
            if len(trained) == 10:
                spot()
            if len(trained) == 15:
                ray.kill(groups._reader, no_restart=False)
            if len(trained) == 25:
                wait_for(lambda: holder(lost / "lock"))  # the worker is back, on the new node
                break
        state = json.loads(json.dumps(groups.state_dict()))
    # The trainer is restarted with its state. Groups that the first one received later come again.
    with rr.collect(given, tasks[1], state=state, resources={"place": 1}, **how) as groups:
        trained += (reference.get().id for reference in groups)
        assert groups.state_dict() == package.Dataset(out, follow=True).following(after=groups.state_dict()).cursor
    assert len(trained) == n and set(trained) == {group.id for group in package.Dataset(out)}
    run_program("verify", out)
    assert f"{n * samples} committed, 0 failed, 0 remaining" in run_program("status", out)


class Trainer:
    """Passes references to other processes."""

    def collect(self, n: int, *args: Any, **options: Any) -> tuple[list[Any], dict[str, Any]]:
        self.groups = rr.collect(*args, **options)
        return [next(self.groups) for _ in range(n)], self.groups.state_dict()


def test_a_lost_reference_is_read_again(
    cluster: Any, spot: Callable[[], Any], bucket: Bucket, simulator: Callable[..., tuple[str, Path]], tmp_path: Path
) -> None:
    n = 4
    server = simulator("--input-ids", "--scripted", str(n))
    # Ray copies small objects into its messages. These groups are larger.
    node, how = spot(), {"out": bucket.new(), "samples": 100, "partitions": 3, "spool": tmp_path / "spool"}
    trainer = ray.remote(Trainer).options(resources={"spot": 1}).remote()
    references, state = ray.get(trainer.collect.remote(n, config(server), lines(server[1]), workers=1, **how))
    first = references[0].get()
    cluster.remove_node(node, allow_graceful=False)  # the trainer, its reader and their objects
    wait_for(lambda: dead(node))
    with pytest.raises(ray.exceptions.ObjectLostError):
        ray.get(references[1].ref)
    dataset = package.Dataset(how["out"])
    for reference in references:
        group, want = reference.get(), dataset.group(reference.id)
        assert (group.run, group.id, group.size) == (want.run, want.id, want.size)
        for a, b in zip(group.rows, want.rows, strict=True):
            assert all(np.array_equal(a[k], b[k]) for k in ("input_ids", "loss_mask", "logprobs", "sample_key", "reward"))
    assert first.id == references[0].id and len({r.id for r in references}) == len(dataset) == n
    with rr.collect(config(server), lines(server[1]), workers=0, state=state, timeout=PATIENCE, **how) as groups:
        assert list(groups) == []


def test_errors(cluster: Any, simulator: Callable[..., tuple[str, Path]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = simulator("--input-ids", "--scripted", "4")
    out, tasks = tmp_path / "fleet", lines(server[1])
    how: dict[str, Any] = {"out": out, "spool": tmp_path / "spool", "timeout": PATIENCE}
    with pytest.raises(package.FolderError, match="no fleet"):
        rr.collect(workers=0, **how)
    with pytest.raises(package.UsageError, match="no such setting|unknown"):
        rr.collect({"agent": {"modle": "x"}}, tasks, workers=1, **how)
    for wrong in ({"where": {}}, {"columns": "reward"}, {"check": "md5"}, {"env": {"A": 1}}, {"num_cpus": "1"}, {"server": 1}, {"config": 1}):
        with pytest.raises((TypeError, ValueError), match=f"^{next(iter(wrong))}="):
            rr.collect(**{"tasks": tasks, "workers": 1, **how, **wrong})
    for argument in ("spool", "config"):
        with pytest.raises(ValueError, match=f"^{argument}: a URL is not supported: pass "):
            rr.collect(**{"tasks": tasks, "workers": 1, **how, argument: "s3://bucket/run"})
    assert not out.exists()
    unreachable = config(("http://127.0.0.1:1", Path()))
    with rr.collect(unreachable, tasks, workers=2, **how) as groups, pytest.raises(package.ServerError) as failed:
        next(groups)
    assert "Traceback" not in str(failed.value) and failed.value.__cause__ is None and failed.value.code == 5
    other = {"tasks": [{**tasks[0], "prompt": "another"}, *tasks[1:]]}
    for change, text in (
        (other, "tasks.file: the fleet has other tasks"),
        ({"samples": 3}, "tasks.samples: the fleet has 1, but you set 3"),
        ({"partitions": 3}, "--partitions: the fleet has 4, but you set 3"),
    ):
        with pytest.raises(package.FolderError, match=text):
            rr.collect(**{"config": unreachable, "tasks": tasks, "workers": 1, **how, **change})
    with pytest.raises(package.StateError, match="not from this fleet"):
        rr.collect(workers=1, state={"partitions": [None]}, **how)
    with rr.collect(workers=0, **{**how, "timeout": 0.1}) as groups:
        for _ in range(2):
            with pytest.raises(TimeoutError, match="no group for 0.1 s"):
                next(groups)
    (tmp_path / "run.yaml").write_text(json.dumps({**config(server), "tasks": {"file": str(server[1])}}))
    with rr.collect(tmp_path / "run.yaml", tasks, workers=1, **how) as groups:  # from another server
        assert sorted(r.id for r in groups) == sorted(g.id for g in package.Dataset(out))
    monkeypatch.chdir(tmp_path)
    rr.run("fleet", workers=1, spool=tmp_path / "other", flags=[f"--server={server[0]}"]).wait()  # nothing is left
    with pytest.raises(package.FolderError, match=f"^{tmp_path}/other: no fleet\nhint: plan one: "):
        rr.run("other", workers=1, spool=tmp_path / "spool")
    with rr.run("fleet", workers=1, spool="/proc/spool") as workers, pytest.raises(package.StorageError, match="^spool: .*/proc/spool.*\nhint: pass a folder"):
        workers.wait()


class Broken:
    def __init__(self) -> None:
        raise ModuleNotFoundError("No module named 'missing'")

    def run(self) -> None:
        pass

    stop = run


def test_an_actor_that_cannot_start_is_one_line(cluster: Any) -> None:
    workers = rr.Workers([ray.remote(Broken).options(num_cpus=0).remote()])
    with pytest.raises(package.CollectError, match=r"^Ray: .*No module named 'missing'$"):
        workers.wait()


DRIVER = """
import json, signal, sys, ray, rollout.ray
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
given = json.loads(sys.argv[1])
ray.init(**given.pop("ray"), logging_level="error")
with rollout.ray.collect(**given) as groups:
    for reference in groups:
        print(reference.id, flush=True)
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_no_process_outlives_the_driver(cluster: Any, simulator: Callable[..., tuple[str, Path]], tmp_path: Path, how: signal.Signals) -> None:
    server = simulator("--input-ids", "--scripted", "100", "--latency", "100ms..200ms")
    given = config(server)
    given["server"]["max_in_flight"] = 1
    options = {"config": given, "tasks": str(server[1]), "out": str(tmp_path / "fleet"), "spool": str(tmp_path / "spool"), "workers": 2, "num_cpus": 0.5}
    options["ray"] = {"address": cluster.address, "runtime_env": {"env_vars": variables()}}
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, json.dumps(options)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert driver.stdout and driver.stdout.readline()
    wait_for(lambda: all(holder(spool / "lock") for spool in spools(tmp_path / "fleet", tmp_path / "spool", 2)))
    assert len(users(tmp_path)) >= 3  # the driver and its workers
    driver.send_signal(how)
    _, err = driver.communicate(timeout=PATIENCE)
    assert driver.returncode != 0 and ("KeyboardInterrupt" in err or how == signal.SIGKILL), err
    wait_for(lambda: not users(tmp_path))
    states = [claim.get("state") for beat in beats(tmp_path / "fleet") for claim in beat.get("claims", {}).values()]
    assert states and all(states) or how == signal.SIGKILL, states  # after Ctrl-C, other workers can take over at once


def test_an_exit_starts_no_cluster(
    cluster: Any, simulator: Callable[..., tuple[str, Path]], tmp_path: Path, run_program: Callable[..., str]
) -> None:
    server, tasks = simulator("--input-ids", "--scripted", "1")
    run_program("plan", "--server", server, "--model", MODEL, "--tasks", tasks, "--out", tmp_path / "fleet")
    how = {"address": cluster.address, "runtime_env": {"env_vars": variables()}, "logging_level": "error"}
    code = f"""
import atexit, ray
atexit.register(lambda: print(ray.is_initialized()))
import rollout.ray
ray.init(**{how!r})
workers = rollout.ray.run({str(tmp_path / "fleet")!r}, workers=1, spool={str(tmp_path / "spool")!r})
ray.shutdown()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr[-4000:]


def users(folder: Path) -> list[int]:
    """The ids of the processes with this folder in their command line."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if str(folder).encode() in (process / "cmdline").read_bytes():
                found.append(int(process.name))
    return found


def test_processes_end_with_their_actors(cluster: Any, simulator: Callable[..., tuple[str, Path]], tmp_path: Path) -> None:
    server = simulator("--input-ids", "--scripted", "2", "--latency", "10m..11m")
    trainer = ray.remote(Trainer).remote()
    trainer.collect.remote(1, config(server), lines(server[1]), workers=1, out=tmp_path / "fleet", spool=tmp_path / "spool")
    wait_for(lambda: any(map(holder, tmp_path.glob("spool/*/0/lock"))))
    (lock,) = tmp_path.glob("spool/*/0/lock")
    pid = holder(lock)
    os.kill(parent(pid), signal.SIGKILL)  # kills the actor; Ray starts it again
    wait_for(lambda: holder(lock) not in (0, pid))
    assert not alive(pid)
    pid = holder(lock)
    ray.kill(trainer)  # the owner of the actor
    wait_for(lambda: not alive(pid))


def test_more_workers_on_the_same_node(
    cluster: Any, simulator: Callable[..., tuple[str, Path]], tmp_path: Path, run_program: Callable[..., str]
) -> None:
    server, tasks = simulator("--input-ids", "--scripted", "2000", "--latency", "400ms..500ms")
    out, how = tmp_path / "fleet", {"workers": 1, "spool": tmp_path / "spool", "num_cpus": 0.5, "flags": ["--max-in-flight=1"]}
    run_program("plan", "--server", server, "--model", MODEL, "--tasks", tasks, "--out", out)
    locks = [spool / "lock" for spool in spools(out, tmp_path / "spool", 2)]
    with rr.run(out, **how) as first:
        wait_for(lambda: holder(locks[0]))
        with rr.run(out, **how) as second:
            wait_for(lambda: sum(bool(beat.get("claims")) for beat in beats(out)) == 2)
            assert len({*map(holder, locks)} - {0}) == 2
            for workers in (first, second):
                workers.wait(0.1)
                assert len(workers._runs) == 1
    run_program("verify", out)


def test_the_readme(simulator: Callable[..., tuple[str, Path]], tmp_path: Path) -> None:
    (code,) = (code for _, code in programs() if "rollout.ray" in code)
    code = code.replace(SERVER, simulator("--input-ids", "--scripted", "1")[0])
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env={**os.environ, "RAY_ADDRESS": "local"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    assert sum(line.endswith(" 8") for line in done.stdout.splitlines()) == 6, done.stdout


def test_the_fleet_page(cluster: Any, bucket: Bucket, simulator: Callable[..., tuple[str, Path]], tmp_path: Path) -> None:
    url, tasks = simulator("--input-ids", "--scripted", "4")
    shutil.copy(tasks, tmp_path / "tasks.jsonl")
    (tmp_path / "run.yaml").write_text(json.dumps(config((url, tasks))))
    code = (Path(__file__).parents[3] / "configs/ray/train.py").read_text().replace("/tmp/spool", str(tmp_path / "spool"))
    (tmp_path / "train.py").write_text(code)
    first, other = bucket.new(), bucket.new()
    for out in (first, first, other):  # the second one continues the run
        env = {**os.environ, "RAY_ADDRESS": cluster.address}
        done = subprocess.run([sys.executable, "train.py", out, "2"], cwd=tmp_path, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-4000:]
        ids = {line.split()[0] for line in done.stdout.splitlines() if line.endswith(" 1")}
        assert ids == {group.id for group in package.Dataset(out)} and len(ids) == 4, done.stdout
