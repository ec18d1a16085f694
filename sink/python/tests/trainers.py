"""Functions of trainers, extracted from their pinned wheels (make trainers) by their AST, so
that nothing of a trainer is installed, imported or copied.
"""

from __future__ import annotations

import __future__
import ast
import os
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

np = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")

FOLDER = Path(os.environ.get("ROLLOUT_TRAINERS") or Path(__file__).parents[3] / ".build" / "trainers")
if not FOLDER.is_dir() and "ROLLOUT_TRAINERS" not in os.environ:
    pytest.skip(f"{FOLDER} is missing: make trainers gets it", allow_module_level=True)


def source(package: str, path: str) -> ast.Module:
    """Return the module at a path inside a wheel."""
    (wheel,) = FOLDER.glob(f"{package}-*.whl")
    with zipfile.ZipFile(wheel) as z:
        (name,) = [n for n in z.namelist() if n == path or n.endswith(f"/purelib/{path}")]
        return ast.parse(z.read(name))


@contextmanager
def doubles() -> Iterator[None]:
    """Make constants and quotients of ints float64, where torch would use float32."""
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


def run(nodes: list[ast.stmt], names: dict[str, Any]) -> dict[str, Any]:
    """Run statements with these names, and return all names."""
    module = ast.fix_missing_locations(ast.Module(body=nodes, type_ignores=[]))
    code = compile(module, "<wheel>", "exec", flags=__future__.annotations.compiler_flag, dont_inherit=True)
    with doubles():
        exec(code, names)
    return names


def functions(package: str, path: str, names: dict[str, Any], *wanted: str) -> SimpleNamespace:
    """Return top-level functions without their decorators."""
    found = {n.name: n for n in source(package, path).body if isinstance(n, ast.FunctionDef) and n.name in wanted}
    assert set(found) == set(wanted)
    for node in found.values():
        node.decorator_list = []
    made = run(list(found.values()), dict(names))
    return SimpleNamespace(**{name: made[name] for name in wanted})


def method(package: str, path: str, name: str) -> ast.FunctionDef:
    """Return a method without its decorators."""
    (found,) = (n for n in ast.walk(source(package, path)) if isinstance(n, ast.FunctionDef) and n.name == name)
    found.decorator_list = []
    return found


def statements(package: str, path: str, method: str, first: str, last: str) -> list[ast.stmt]:
    """Return the statements of a method from the first that contains one text to the next that
    contains another, in the block with both."""
    for node in ast.walk(source(package, path)):
        if isinstance(node, ast.FunctionDef) and node.name == method:
            words = [ast.unparse(s) for s in node.body]
            begins = [i for i, w in enumerate(words) if first in w]
            if begins:
                end = next(i for i in range(begins[0], len(words)) if last in words[i])
                return node.body[begins[0] : end + 1]
    raise AssertionError(f"{path}: no {first!r} in {method}")


class Verl:
    """Functions of verl 0.9.1 on outcome rewards."""

    def __init__(self) -> None:
        whiten = ("masked_sum", "masked_mean", "masked_var", "masked_whiten")
        inside = functions("verl", "verl/utils/torch_functional.py", {"torch": torch}, *whiten)
        names = {"torch": torch, "np": np, "defaultdict": defaultdict, "verl_F": inside}
        self.core = functions(
            "verl", "verl/trainer/ppo/core_algos.py", names,
            "compute_grpo_outcome_advantage", "compute_rloo_outcome_advantage", "compute_reinforce_plus_plus_outcome_advantage",
            "compute_reinforce_plus_plus_baseline_outcome_advantage", "agg_loss",
        )  # fmt: skip

    def __call__(self, name: str, reward: Any, tokens: Any, group: Any, **more: Any) -> Any:
        """Return the advantage of each response: the reward is on its last token."""
        mask = torch.from_numpy(np.arange(max(tokens) + 2) < np.asarray(tokens)[:, None]).double()
        rewards = torch.zeros_like(mask)
        rewards[torch.arange(len(tokens)), torch.as_tensor(tokens) - 1] = torch.as_tensor(reward)
        function = getattr(self.core, f"compute_{name}_outcome_advantage")
        with doubles():
            advantages, _ = function(token_level_rewards=rewards, response_mask=mask, index=group, **more)
        rows = [advantages[i, :n].numpy() for i, n in enumerate(tokens)]
        for row in rows:
            np.testing.assert_array_equal(row, row[0])
        return np.array([row[0] for row in rows])


class Trl:
    """The advantages of TRL 1.16.0; unscored samples are NaN."""

    def __init__(self) -> None:
        nanstd = functions("trl", "trl/trainer/utils.py", {"torch": torch}, "nanstd")
        self.names = {"torch": torch, "nanstd": nanstd.nanstd, "device": "cpu", "mode": "train"}
        method = "_generate_and_score_completions"
        last = "advantages = torch.nan_to_num(advantages"
        self.grpo_code = statements("trl", "trl/trainer/grpo_trainer.py", method, "unscorable_mask = ", last)
        self.rloo_code = statements("trl", "trl/trainer/rloo_trainer.py", method, "grouped_rewards = ", last)

    def grpo(self, reward: Any, size: int, scale_rewards: str = "group") -> Any:
        self_ = SimpleNamespace(
            multi_objective_aggregation="sum_then_normalize", scale_rewards=scale_rewards, reward_weights=torch.ones(1).double()
        )
        names = {"self": self_, "rewards_per_func": torch.as_tensor(reward)[:, None], "num_generations": size}
        return run(self.grpo_code, {**self.names, **names})["advantages"].numpy()

    def rloo(self, reward: Any, size: int) -> Any:
        names = {"self": SimpleNamespace(normalize_advantages=False), "rewards": torch.as_tensor(reward), "num_generations": size}
        return run(self.rloo_code, {**self.names, **names})["advantages"].numpy()


class _Double(ast.NodeTransformer):
    """Casts to float32 become casts to float64."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        return ast.Attribute(node.value, "double", node.ctx) if node.attr == "float" else node


class OpenRlhf:
    """The advantages of OpenRLHF 0.11.2, without its casts to float32."""

    def __init__(self) -> None:
        path, method = "openrlhf/trainer/ppo_utils/experience_maker.py", "compute_advantages_and_returns"
        shape = "args.algo.advantage.estimator == 'rloo'"
        whiten = "args.algo.advantage.estimator in ['gae'"
        self.shape = statements("openrlhf", path, method, shape, shape)
        self.whiten = [_Double().visit(s) for s in statements("openrlhf", path, method, whiten, whiten)]

    def __call__(self, estimator: str, reward: Any, tokens: Any, size: int) -> Any:
        advantage = SimpleNamespace(estimator=estimator, no_std_norm=False)
        args = SimpleNamespace(algo=SimpleNamespace(advantage=advantage), rollout=SimpleNamespace(n_samples_per_prompt=size))
        names: dict[str, Any] = {"torch": torch, "args": args, "rewards": torch.as_tensor(reward).reshape(-1, size)}
        shaped = run(self.shape, names)["rewards"].reshape(-1)
        mask = torch.from_numpy(np.arange(max(tokens)) < np.asarray(tokens)[:, None])
        # The result of get_cumulative_returns if gamma is 1 and there is no penalty.
        made = SimpleNamespace(advantages=shaped[:, None] * mask, action_mask=mask)
        run(self.whiten, {**names, "experiences": [made]})
        return made.advantages[:, 0].numpy()
