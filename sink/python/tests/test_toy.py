"""A policy learns from shards with the loop of README.md, and check identifies faults."""

from __future__ import annotations

import ast
import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import toy
from rollout import Dataset, check

torch = toy.torch

README = Path(__file__).resolve().parents[1] / "README.md"
ROUNDS = 30
"""At most. In ten jobs, the policy had learned after 5 or 6 of them."""


def readme_loop() -> Callable[..., None]:
    """Return the function train of the README, with its imports."""
    (block,) = (b.partition("```")[0] for b in README.read_text("utf-8").split("```python\n") if "\ndef train(" in b)
    wanted: list[ast.stmt] = [n for n in ast.parse(block).body if isinstance(n, (ast.Import, ast.ImportFrom, ast.FunctionDef))]
    names: dict[str, Any] = {}
    exec(compile(ast.Module(wanted, []), str(README), "exec"), names)
    loop: Callable[..., None] = names["train"]
    return loop


def test_the_logprobs_of_a_causal_model_are_those_of_the_readme() -> None:
    text = README.read_text("utf-8").partition("causal language model from the transformers library")[2]
    code = text.partition("```py\n")[2].partition("```")[0]
    policy = toy.Policy()
    names: dict[str, Any] = {"torch": torch, "model": lambda ids: SimpleNamespace(logits=policy(ids))}
    exec(code, names)
    ids = torch.randint(toy.VOCABULARY, (3, 7))
    torch.testing.assert_close(names["logprobs_of"](ids), policy.logprobs_of(ids))


class Collected:
    """Runs collected from one server, whose calls an engine answers."""

    def __init__(self, engine: toy.Engine, address: str, collect: Callable[..., Path], url: str, folder: Path):
        self.engine, self.address, self._collect, self._url, self._folder = engine, address, collect, url, folder

    def __call__(self, name: str, *flags: str, **agent: Any) -> Path:
        tasks = self._folder / f"{name}.jsonl"
        lines = [{"id": f"{letter}{k}", "prompt": f"say {letter}", "answer": letter} for letter in toy.LETTERS for k in range(4)]
        tasks.write_text("".join(json.dumps(task | ({"agent": agent} if agent else {})) + "\n" for task in lines))
        given = ("--server", self._url, "--tasks", tasks, "--samples", "8", "--reward", "exact", "--out", self._folder / name)
        return self._collect(*given, *flags)


@pytest.fixture(scope="module")
def collected(
    simulator: Callable[..., tuple[str, Path]], collect: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Collected]:
    engine = toy.Engine(toy.read_before(1))
    with toy.serve(engine) as address:
        url, _ = simulator("--input-ids", "--engine", address)
        yield Collected(engine, address, collect, url, tmp_path_factory.mktemp("toy"))


def mean_reward(run: Path) -> float:
    rewards: list[float] = [row["reward"] for group in Dataset(run) for row in group.rows]
    assert len(rewards) == 16 * 8 and set(rewards) <= {0.0, 1.0}
    return sum(rewards) / len(rewards)


def one(policy: toy.Policy) -> Callable[..., Any]:
    """Return the function for check."""
    return lambda ids, temperature=1.0: policy.logprobs_of(ids[None], temperature)[0]


@pytest.fixture(scope="module")
def rounds(collected: Collected) -> list[tuple[toy.Policy, Path]]:
    """The runs of a training job, each with the policy that sampled it.

    The order of commits, and so of batches, differs from run to run: the job ends when two rounds
    in a row have a mean reward of 0.6. Of 128 guesses among four, 0.6 are never right.
    """
    train, policy, made = readme_loop(), collected.engine.policy, []
    optimizer = torch.optim.Adam(policy.parameters(), 0.04)
    for version in range(ROUNDS):
        collected.engine.version = version
        run = collected(f"round-{version}")
        made.append((copy.deepcopy(policy), run))
        if version and all(mean_reward(run) > 0.6 for _, run in made[-2:]):
            break
        for _ in range(2):
            train(policy.logprobs_of, optimizer, run)
    return made


def test_the_policy_learns(rounds: list[tuple[toy.Policy, Path]]) -> None:
    rewards = [mean_reward(run) for _, run in rounds]
    assert rewards[0] < 0.5 and min(rewards[-2:]) > 0.6, rewards


def test_check_passes_on_what_was_sampled(rounds: list[tuple[toy.Policy, Path]]) -> None:
    for policy, run in (rounds[0], rounds[-1]):
        report = check(one(policy), run, rows=1000, tolerance=1e-3)
        assert report.ok and report.rows == 16 * 8, report
        assert check(lambda ids, policy=policy: policy(ids[None])[0], run, tolerance=1e-3).ok


# Trained policies differ from run to run, and may be so sure of an answer that few tokens tell two
# of them apart. The next two tests must find a difference, so their policies are always the same.
def partial(seed: int) -> toy.Policy:
    """Return a policy that prefers some letters."""
    policy = toy.read_before(seed)
    with torch.no_grad():
        policy.head.bias += torch.randn(toy.VOCABULARY)
    return policy


def test_check_names_a_temperature(collected: Collected) -> None:
    engine, policy = collected.engine, partial(2)
    engine.policy, engine.version = policy, 100
    run = collected("cold", temperature=0.6)
    report = check(one(policy), run, rows=1000)
    assert (report.ok, report.cause) == (False, "temperature"), report
    assert check(lambda ids: one(policy)(ids, 0.6), run, tolerance=1e-3).ok


def test_check_names_the_version_that_has_other_weights(collected: Collected) -> None:
    """Weights change during a run: each version in the rows is the version of the weights."""
    engine, before, after = collected.engine, partial(3), partial(4)
    engine.policy, engine.version, engine.update = before, 201, (64, after, 205)
    run = collected("updated", "--policy-version", f"{collected.address}/model_info", "--one-engine", "--max-in-flight", "4")
    for policy, good, bad in ((before, "201", "205"), (after, "205", "201")):
        report = check(one(policy), run, rows=1000, tolerance=1e-3)
        lines = {line.name: line for line in report.by_version}
        assert lines[good].mean < 1e-5 and lines[bad].off and min(lines[good].tokens, lines[bad].tokens) > 50, report
        assert report.cause == "weights" and f"tokens from version {good} agree, but tokens from version {bad} do not" in report.message
