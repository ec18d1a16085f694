"""collect() inside Ray actors: a plain one and an asynchronous one, with the real program.

Runs if Ray is installed: `make raytest` creates an environment with it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from test_collect_run import config, lines
from waiting import alive, wait_for

import rollout

ray = pytest.importorskip("ray")


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    folders = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": folders.rstrip(os.pathsep)}
    ray.init(num_cpus=2, include_dashboard=False, runtime_env={"env_vars": env}, logging_level="error")
    yield
    ray.shutdown()


class Trainer:
    """Takes the groups of a collection that it creates itself."""

    def begin(self, config: dict[str, Any], tasks: list[dict[str, Any]], out: str) -> None:
        import rollout

        self.c = rollout.collect(config, tasks, out=out, samples=2, max_ahead=2, timeout=60)

    def train(self, n: int) -> tuple[list[str], int]:
        ids = [next(self.c).id for _ in range(n)]
        self.c.set_version(n)
        return ids, self.c.status().get("pid", 0)


class AsyncTrainer(Trainer):
    async def train(self, n: int) -> tuple[list[str], int]:
        return [(await anext(self.c)).id for _ in range(n)], self.c.status().get("pid", 0)


@pytest.mark.parametrize("kind", [Trainer, AsyncTrainer])
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_collection_in_an_actor(cluster: None, simulator: Callable[..., tuple[str, Path]], tmp_path: Path, kind: type) -> None:
    url, path = simulator("--input-ids", "--scripted", "8")
    given, tasks = config((url, path)), lines(path)
    actor = ray.remote(kind).remote()
    ray.get(actor.begin.remote(given, tasks, str(tmp_path / "run")))
    ids, pid = ray.get(actor.train.remote(5))
    assert len(set(ids)) == 5 and alive(pid)
    ray.kill(actor)  # like a machine failure: the actor runs no cleanup
    wait_for(lambda: not alive(pid))
    again = ray.remote(kind).remote()
    ray.get(again.begin.remote(given, tasks, str(tmp_path / "run")))
    more, _ = ray.get(again.train.remote(4))
    # The group that the first actor had not finished comes again.
    assert more[0] == ids[4] and set(ids + more) == {g.id for g in rollout.Dataset(tmp_path / "run")}
