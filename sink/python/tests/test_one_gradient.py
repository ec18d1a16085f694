"""One dataset, one gradient: the GRPO loss of one batch by plain PyTorch, by TRL's loss and by verl's loss.

The batch has forks, failed samples, cut rows and an unscored sample. TRAINERS.md lists the results.
Both trainers' functions come from their wheels or, with ROLLOUT_FRAMEWORKS, from the installed packages
(make frameworks): the rows then go through verl's TensorDict and the TransferQueue.
"""

from __future__ import annotations

import dataclasses
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import collates
import frameworks
import pytest
import trainers

import rollout
from rollout import Dataset, Group, advantages, collate

np, torch = frameworks.np, frameworks.torch
CLASSES = 64
TRL = {"epsilon": 1e-8, "ddof": 0}
"""The formula of TRL's asynchronous trainer."""


class Model(torch.nn.Module):
    """The log-probability of a token depends on the token before it: both count modulo 64."""

    def __init__(self, noise: float) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(1)
        table = torch.randn(CLASSES, CLASSES, generator=generator) + noise * torch.randn(CLASSES, CLASSES, generator=generator)
        self.table = torch.nn.Parameter(table)

    def logprob(self, before: Any, token: Any) -> Any:
        return self.table.log_softmax(-1)[before % CLASSES, token % CLASSES]

    def forward(self, input_ids: Any, shift_labels: Any, **_: Any) -> Any:
        """As TRL calls it: shift_labels[i] is the token after input_ids[i]."""
        return SimpleNamespace(log_probs=self.logprob(input_ids, shift_labels), entropy=torch.zeros_like(input_ids))


Result = tuple[float, Any]
"""A loss, and its gradient."""


@pytest.fixture(scope="module")
def groups(collect: Callable[..., Path]) -> list[Group]:
    """Groups whose log-probabilities come from a model near the trained one."""
    simulate = ("--input-ids", "--scripted", "5", "--drift", "0.7", "--wrong", "0.4", "--fault", "id-mismatch=0.1")
    run = collect("--samples", "6", "--reward", "number", "--max-row-tokens", "600", simulate=simulate, status=(0, 3, 4))
    old, made = Model(0.0), []
    for group in sorted(Dataset(run), key=lambda g: (g.failed, g.id)):
        rows = []
        for row in group.rows:
            ids = torch.as_tensor(row["input_ids"].astype(np.int64))
            values = torch.nn.functional.pad(old.logprob(ids[:-1], ids[1:]), (1, 0)).detach().numpy()
            rows.append({**row, "logprobs": np.where(row["loss_mask"] == 1, values, 0).astype(np.float32)})
        made.append(replace(group, rows=rows))
    every = [row for group in made for row in group.rows]
    assert any(row["segment_index"] for row in every) and any(g.failed for g in made) and any(row["truncated"] for row in every)
    assert sum(len({r["reward"] for r in g.rows}) > 1 for g in made) > 1
    return made


def gradient(of: Callable[[Model], Any]) -> Result:
    model = Model(0.2)
    loss = of(model)
    loss.backward()
    assert model.table.grad is not None and model.table.grad.abs().max() > 0
    return loss.item(), model.table.grad


def plain(groups: list[Group], mode: str = "token-mean", **formula: Any) -> Result:
    """The loss of the README's training loop."""

    def loss(model: Model) -> Any:
        batch = collate.padded(pad_id=0, null_reward="drop")(groups)
        advantage = advantages.grpo(batch["reward"], batch["group"], batch["sample"], **formula)
        weight = rollout.loss_weights(batch["tokens"], batch["sample"], mode=mode)
        a, w = advantage[batch["row_ids"]], weight[batch["row_ids"]] * batch["loss_mask"]
        ids = batch["input_ids"]
        new = torch.nn.functional.pad(model.logprob(ids[:, :-1], ids[:, 1:]), (1, 0))
        ratio = (new - batch["logprobs"]).exp()
        return -(w * torch.minimum(ratio * a, ratio.clamp(0.8, 1.2) * a)).sum()

    return gradient(loss)


def trl(groups: list[Group], null_reward: str = "drop") -> Result:
    """TRL's compute_loss on the batch of its own packing and collator."""
    found = frameworks.trl()
    with frameworks.modules(**({} if frameworks.INSTALLED else {"trl__experimental__async_grpo__async_rollout_worker": found})):
        samples = rollout.to_trl(groups, null_reward=null_reward, versions=lambda row: (0, 0))
    row = found.TreeRow()
    for sample in samples:
        row.add({f.name: getattr(sample, f.name) for f in dataclasses.fields(sample)})
    inputs = found.DataCollatorForRollout(pad_token_id=0, metrics=defaultdict(list)).torch_call([[row]])
    if frameworks.INSTALLED:
        compute_loss = found.AsyncGRPOTrainer.compute_loss
    else:
        method = trainers.method("trl", "trl/experimental/async_grpo/async_grpo_trainer.py", "compute_loss")
        stats = trainers.functions("trl", "trl/trainer/utils.py", {"torch": torch}, "nanmin", "nanmax")
        compute_loss = trainers.run([method], {"torch": torch, "time": time, **vars(stats)})["compute_loss"]
    accelerator = SimpleNamespace(num_processes=1, reduce=lambda value, reduction: value, gather=lambda value: value)
    steps = dict.fromkeys(("_step_forward_tokens", "_step_trained_tokens", "_step_seq_len_weighted", "_step_samples", "_step_forward_s"), 0.0)
    trainer = SimpleNamespace(
        aux_loss_enabled=False, epsilon_low=0.2, epsilon_high=0.2, accelerator=accelerator, current_gradient_accumulation_steps=1,
        _metrics={"train": defaultdict(list)}, **steps,
    )  # fmt: skip
    return gradient(lambda model: compute_loss(trainer, model, inputs))


class Config(SimpleNamespace):
    def get(self, name: str, default: Any) -> Any:
        return getattr(self, name, default)


def verl(groups: list[Group], mode: str = "token-mean", batch_size: int | None = None, **options: Any) -> Result:
    """verl's ppo_loss with verl's advantages. batch_size: the number of samples, which verl's trainer knows."""
    if frameworks.INSTALLED:
        return installed_verl(groups, mode, batch_size, **options)
    data, functions, rows = collates.verl_batch(groups, null_reward="drop", **options)
    queue = frameworks.Verl()
    keys = [f"{row['uid']}_{row['session_id']}_{i}" for i, row in enumerate(rows)]
    queue.tq.kv_batch_put(keys=keys, partition_id="train", fields=rows)
    found = queue.advantages(keys)
    data["advantages"] = torch.nn.utils.rnn.pad_sequence([torch.as_tensor(found[key]) for key in keys], batch_first=True)
    data |= {"dp_size": 1, "batch_num_tokens": None, "global_batch_size": batch_size}
    inside = trainers.functions("verl", "verl/utils/torch_functional.py", {"torch": torch}, "masked_sum", "masked_mean")
    core = trainers.functions(
        "verl", "verl/trainer/ppo/core_algos.py", {"torch": torch, "verl_F": inside, "AlgoConfig": type("AlgoConfig", (), {})},
        "agg_loss", "compute_policy_loss_vanilla",
    )  # fmt: skip
    metric: Any = lambda **_: None  # noqa: E731
    metric.from_dict = lambda *_, **__: {}
    names = {"agg_loss": core.agg_loss, "get_policy_loss_fn": lambda mode: core.compute_policy_loss_vanilla, "Metric": metric}
    names |= {"torch": torch, "AggregationType": SimpleNamespace(SUM=0, MEAN=1), **functions}
    ppo_loss = trainers.functions("verl", "verl/workers/utils/losses.py", names, "ppo_loss").ppo_loss
    config = Config(
        clip_ratio=0.2, clip_ratio_low=None, clip_ratio_high=None, loss_agg_mode=mode, loss_scale_factor=None, policy_loss={}, use_kl_loss=False,
        global_batch_info={},
    )  # fmt: skip

    def loss(model: Model) -> Any:
        values = [torch.nn.functional.pad(model.logprob(row["input_ids"][:-1], row["input_ids"][1:]), (0, 1)) for row in rows]
        return ppo_loss(config, {"log_probs": torch.cat(values)}, data)[0]

    return gradient(loss)


def installed_verl(groups: list[Group], mode: str, batch_size: int | None, **options: Any) -> Result:
    """As verl, with the installed package: the rows go through the TransferQueue, as in its trainer."""
    from verl.utils import tensordict_utils
    from verl.workers.config import ActorConfig
    from verl.workers.utils.losses import ppo_loss

    queue = frameworks.Verl()
    queue.tq.init()
    made = rollout.to_verl(groups, null_reward="drop", versions=lambda row: (0, 0), **options)
    names = ["prompts", "responses", "input_ids", "response_mask", "rollout_log_probs", *(["rollout_is_weights"] if options else [])]
    try:
        queue.tq.kv_batch_put(partition_id="train", **made)
        queue.advantages(made["keys"])
        data = queue.tq.kv_batch_get(keys=made["keys"], partition_id="train", select_fields=[*names, "advantages"])
    finally:
        queue.tq.kv_clear(keys=made["keys"], partition_id="train")
    data["old_log_probs"] = data.pop("rollout_log_probs")
    tensordict_utils.assign_non_tensor(data, dp_size=1, batch_num_tokens=None, global_batch_size=batch_size)
    config = ActorConfig(strategy="fsdp", ppo_micro_batch_size_per_gpu=1, loss_agg_mode=mode, rollout_n=6)

    def loss(model: Model) -> Any:
        values = [torch.nn.functional.pad(model.logprob(ids[:-1], ids[1:]), (0, 1)) for ids in data["input_ids"].unbind()]
        return ppo_loss(config, {"log_probs": torch.cat(values)}, data)[0]

    return gradient(loss)


def difference(one: Result, two: Result) -> tuple[float, float]:
    """Return the difference of the losses, and the largest difference of the gradients relative to the largest entry."""
    return abs(one[0] - two[0]), float((one[1] - two[1]).abs().max() / one[1].abs().max())


def samples(groups: Iterable[Group]) -> int:
    return len({row["sample_key"] for group in groups for row in group.rows})


def unscored(groups: list[Group]) -> list[Group]:
    """Return the groups without the reward of one sample."""
    key = groups[0].rows[0]["sample_key"]
    return [replace(group, rows=[{**row, "reward": None if row["sample_key"] == key else row["reward"]} for row in group.rows]) for group in groups]


def unforked(groups: list[Group]) -> list[Group]:
    forked = {row["sample_key"] for group in groups for row in group.rows if row["segment_index"]}
    return [replace(group, rows=[row for row in group.rows if row["sample_key"] not in forked]) for group in groups]


CASES: dict[str, tuple[Callable[[list[Group]], tuple[Result, Result]], bool]] = {
    "plain and TRL, mean over tokens": (lambda g: (plain(g, **TRL), trl(g)), True),
    "plain and verl, mean over tokens": (lambda g: (plain(g, preset="verl"), verl(g)), True),
    "plain and verl, mean over samples, weigh_samples": (
        lambda g: (plain(g, "seq-mean-token-mean", preset="verl"), verl(g, "seq-mean-token-mean", samples(g), weigh_samples=True)), True
    ),
    "plain and verl, mean over samples, no forks": (
        lambda g: (plain(unforked(g), "seq-mean-token-mean", preset="verl"), verl(unforked(g), "seq-mean-token-mean")), True
    ),
    "plain and TRL, an unscored sample is dropped": (lambda g: (plain(unscored(g), **TRL), trl(unscored(g))), True),
    "plain and verl, an unscored sample is dropped": (lambda g: (plain(unscored(g), preset="verl"), verl(unscored(g))), True),
    "TRL and verl": (lambda g: (trl(g), verl(g)), False),
    "plain and verl, mean over rows": (
        lambda g: (plain(g, "seq-mean-token-mean", preset="verl"), verl(g, "seq-mean-token-mean")), False
    ),
    "plain and TRL, an unscored sample is kept with advantage 0": (lambda g: (plain(unscored(g), **TRL), trl(unscored(g), "zero")), False),
}  # fmt: skip
"""The losses to compare, and whether they are equal."""


@pytest.mark.parametrize("name", CASES)
def test_one_gradient(groups: list[Group], name: str) -> None:
    both, equal = CASES[name]
    loss, grad = difference(*both(groups))
    print(f"{name}: {loss:.1e} {grad:.1e}")
    if equal:
        assert loss < 1e-6 and grad < 1e-5
    else:
        assert grad > 1e-3


def test_what_the_differences_are(groups: list[Group]) -> None:
    """Each of them is explained by one factor."""
    whole = [group for group in groups if samples([group]) == 6]
    assert whole
    one, two = trl(whole), verl(whole)  # a standard deviation with n, or with n - 1
    assert difference((one[0] * (5 / 6) ** 0.5, one[1] * (5 / 6) ** 0.5), two) < (1e-5, 1e-5)
    part = unscored(groups)
    tokens = [sum(int(row["loss_mask"].sum()) for group in g for row in group.rows if row["reward"] is not None) for g in (part, groups)]
    share = tokens[0] / tokens[1]  # TRL divides by the tokens of the unscored sample too
    kept, dropped = trl(part, "zero"), trl(part)
    assert difference((dropped[0] * share, dropped[1] * share), kept) < (1e-6, 1e-5)


@pytest.mark.parametrize("column", ["loss_mask", "logprobs"])
@pytest.mark.parametrize("of", [trl, verl])
def test_an_off_by_one_has_another_gradient(groups: list[Group], of: Callable[[list[Group]], Result], column: str) -> None:
    formula = TRL if of is trl else {"preset": "verl"}
    off = [replace(group, rows=[{**row, column: np.roll(row[column], 1)} for row in group.rows]) for group in groups]
    assert difference(plain(groups, **formula), of(off))[1] > 1e-2
