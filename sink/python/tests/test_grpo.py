"""The loop of examples/grpo.py, which is in README.md: a policy learns from a warm collector."""

from __future__ import annotations

import copy
import importlib.util
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import frameworks
import pytest
import toy

import rollout

torch = toy.torch

FILE = Path(__file__).resolve().parents[1] / "examples" / "grpo.py"


def loop() -> Callable[..., Iterator[tuple[int, float, int]]]:
    spec = importlib.util.spec_from_file_location("grpo", FILE)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.grpo  # type: ignore[no-any-return]


def test_the_readme_shows_the_file() -> None:
    code = FILE.read_text("utf-8")
    assert f"```python\n{code}```\n" in (FILE.parents[1] / "README.md").read_text("utf-8")
    assert len(code.splitlines()) < 80


class Noted:
    """A collector that records what it returns. It acknowledges everything with each version,
    unless it does so by itself."""

    def __init__(self, collector: rollout.Collection, given: list[rollout.Group], ack: str) -> None:
        self.collector, self.given, self.ack = collector, given, ack
        self.state_dict, self.load_state_dict = collector.state_dict, collector.load_state_dict

    def set_version(self, version: int) -> None:
        self.collector.set_version(version)
        if self.ack == "manual":
            self.collector.ack()

    def __iter__(self) -> Iterator[rollout.Group]:
        for group in self.collector:
            self.given.append(group)
            yield group


class Loop:
    """A training job on the task of toy.py, which can be stopped and restarted."""

    def __init__(self, engine: toy.Engine, url: str, folder: Path) -> None:
        self.engine, self.url, self.folder, self.policy = engine, url, folder, copy.deepcopy(engine.policy)
        self.given: list[rollout.Group] = []
        self.fails_at = -1

    def push(self, version: int) -> None:
        if version == self.fails_at:
            raise ConnectionError
        with self.engine._lock:
            self.engine.policy, self.engine.version = copy.deepcopy(self.policy), version

    def train(self, steps: int, max_ahead: int = 2, ack: str = "auto") -> list[tuple[int, float, int]]:
        tasks = ({"prompt": f"say {letter}", "answer": letter} for letter in itertools.cycle(toy.LETTERS))
        settings = {"server": self.url, "model": "sglang//models/qwen3", "samples": 8, "flags": ["--reward=exact"]}
        with rollout.collect(tasks=tasks, out=self.folder / "run1", max_ahead=max_ahead, ack=ack, **settings) as collector:
            noted = Noted(collector, self.given, ack)
            return list(loop()(self.policy, self.policy.logprobs_of, self.push, noted, str(self.folder / "c.pt"), steps=steps, rate=0.015))


@pytest.fixture
def training(simulator: Callable[..., tuple[str, Path]], tmp_path: Path) -> Iterator[Loop]:
    engine = toy.Engine(toy.read_before(1))
    with toy.serve(engine) as address:
        url, _ = simulator("--input-ids", "--engine", address)
        yield Loop(engine, url, tmp_path)


def test_the_policy_learns(training: Loop) -> None:
    steps = training.train(32)
    assert [step for step, _, _ in steps] == list(range(1, 33))
    rewards = [reward for _, reward, _ in steps]
    # 0.6 to 0.9 was seen. Of 256 guesses among four, 0.42 are right once in 10^9.
    assert sum(rewards[:4]) / 4 < 0.4 and sum(rewards[-8:]) / 8 > 0.42, rewards
    versions = [row["policy_version_min"] for group in training.given for row in group.rows]
    known = [v for v in versions if v is not None]
    assert len(known) > len(versions) / 2 and known[0] == 0 and max(known) > 15, versions


def test_the_loop_is_on_its_policy_where_it_acknowledges_with_the_version(training: Loop) -> None:
    training.train(3, max_ahead=4, ack="manual")
    versions = [{row["policy_version_min"] for row in group.rows} for group in training.given]
    assert versions == [{step} for step in range(3) for _ in range(4)]


def test_a_restored_training_sees_each_group_once(training: Loop) -> None:
    """It ends within its third step: the groups of that step are in no checkpoint, and come
    again."""
    training.fails_at = 3
    with pytest.raises(ConnectionError):
        training.train(6)
    first = [group.id for group in training.given]
    assert len(first) == len(set(first)) == 12
    training.fails_at = -1
    training.given.clear()
    assert [step for step, _, _ in training.train(4)] == [3, 4]
    second = [group.id for group in training.given]
    assert second[:4] == first[8:] and len(set(second)) == 8 and not set(second[4:]) & set(first)
    training.given.clear()
    assert training.train(4) == [] and training.given == [], "all its steps were made"


def test_old_groups_are_left_out_by_the_loop(collect: Callable[..., Path], tmp_path: Path) -> None:
    """The groups have versions 0 to 11: the tenth step uses versions from 5."""
    table = torch.nn.Embedding(151_936, 1)
    empty = torch.optim.Adam(table.parameters(), 0.01).state_dict()
    start = {"model": table.state_dict(), "optimizer": empty, "step": 9, "collector": {"groups": 0}}
    torch.save(start, tmp_path / "c.pt")
    collector = frameworks.Finished(frameworks.groups_of(collect))
    told: list[int] = []
    steps = loop()(table, lambda ids: torch.nn.functional.logsigmoid(table(ids))[..., 0], told.append, collector, str(tmp_path / "c.pt"), steps=10, groups=6)
    ((step, _, old),) = steps
    assert (step, old, collector.given) == (10, 5, 11) and told == collector.versions == [9, 10]
    assert torch.load(tmp_path / "c.pt")["collector"]["groups"] == 11
