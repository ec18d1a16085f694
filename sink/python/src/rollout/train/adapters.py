"""Batches of groups as the objects that trainers accept.

    to_trl     TRL 1.16.0: RolloutSamples of the asynchronous GRPO trainer
    to_verl    verl 0.9.1: keys, fields and tags of the TransferQueue, for trainer v1
    to_slime   slime 624b824: samples in the file format of --load-debug-rollout-data
    to_tinker  tinker 0.38.0: Datums for forward_backward

Each function takes a list of whole groups and converts their rows, in order. It imports its trainer
when it is called; to_slime imports nothing.

Forks. A sample with several rows has one advantage, and counts once in the statistics of its
group. The documentation of each function states how much its rows weigh in the loss.

Failed samples. Samples that failed or have no row do not count. An advantage is computed from the
samples that have a row and a reward. Rows without a token to train on are dropped.

Null rewards. null_reward="error" (the default) raises ValueError for a sample without a reward.
"drop" drops its rows.

Rows without a prompt. No trainer can train on the first token of a row. to_verl and to_slime raise
ValueError for a row that begins with a sampled token.
"""

from __future__ import annotations

import json
import math
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from rollout._args import flag, function, instance, one_of, texts
from rollout._arrays import Floats
from rollout._types import Group, Row
from rollout.train import advantages
from rollout.train._layout import unscored
from rollout.train.weights import loss_weights

Versions = Callable[[Row], tuple[int, int]]
_NEEDED = ("sample_key", "sample_index", "segment_index", "input_ids", "loss_mask", "logprobs", "prompt_length", "reward")


def row_versions(row: Row) -> tuple[int, int]:
    """Return the oldest and the newest policy version in a row. Raises ValueError if they are unknown."""
    oldest, newest = row.get("policy_version_min"), row.get("policy_version_max")
    if oldest is None or newest is None:
        raise ValueError(
            f"row {row['segment_index']} of sample {row['sample_key']} has no policy version, and this trainer needs one: collect with "
            "--policy-version, or pass versions=, a function that returns the oldest and the newest version of a row: lambda row: (7, 7)"
        )
    return int(oldest), int(newest)


def to_trl(groups: Iterable[Group], *, null_reward: str = "error", versions: Versions = row_versions) -> list[Any]:
    """Return a trl.experimental.async_grpo.async_rollout_worker.RolloutSample for each row.

    rollout.trl.RolloutWorker puts them into the queue of AsyncGRPOTrainer.

    The advantage is computed as in TRL's own worker (async_rollout_worker.py:1058): (reward - mean)
    / (deviation + 1e-8). null_reward="zero" keeps the rows of unscored samples with advantage 0, as
    that worker does. TRL's loss is the mean over the tokens, so the rows of a sample weigh as one row
    would. model_version is the oldest version that versions returns; the trainer drops the row if it
    is too old. group_id is the number of the group in the list.
    """
    from trl.experimental.async_grpo.async_rollout_worker import RolloutSample

    function("versions", versions)
    out = []
    for number, (_, rows) in enumerate(_rows(groups, null_reward, ("error", "drop", "zero"))):
        advantage, scored = _advantages(rows, epsilon=1e-8, ddof=0), _rewards(rows)
        deviation = float(np.std(scored)) if scored.size else math.nan
        for row, a in zip(rows, advantage.tolist()):
            out.append(RolloutSample(
                prompt=[],
                completion=json.loads(row.get("messages") or "[]"),
                input_ids=row["input_ids"].astype(np.int64),
                completion_mask=row["loss_mask"].astype(np.int64),
                old_log_probs=np.asarray(row["logprobs"], dtype=np.float32),
                advantage=a,
                model_version=_bounds(row, versions)[0],
                group_id=number,
                metrics={"reward": math.nan if unscored(row) else float(row["reward"]), "reward_std": deviation},
            ))  # fmt: skip
    return out


def to_verl(
    groups: Iterable[Group],
    *,
    uids: Sequence[str] | None = None,
    null_reward: str = "error",
    versions: Versions = row_versions,
    weigh_samples: bool = False,
) -> dict[str, Any]:
    """Return the arguments keys, fields and tags of transfer_queue.kv_batch_put:

        transfer_queue.kv_batch_put(partition_id="train", **rollout.to_verl(groups))

    rollout.verl.Feeder does this for each prompt of the trainer, and marks the prompt as finished.

    The keys are {uid}_{sample_index}_{segment_index}. uids has one text per group; the default is the
    id of the group. verl computes the advantages itself (compute_advantage_for_multi_trajectories). A
    row without a score would remove the scores of the whole batch, so unscored samples cannot be kept.
    The tags contain the two versions that versions returns. Rows with the column routed_experts get
    the field routed_experts, which verl replays (router_replay mode R3). In this field,
    the last token of a row has zeros.

    In verl, each row is a sequence. With loss_agg_mode token-mean, the rows of a sample weigh as one
    row would. With seq-mean-token-mean, each row weighs as much as a whole sample, unless
    weigh_samples=True adds the field rollout_is_weights (see rollout.verl).
    """
    from verl.utils.tensordict_utils import list_of_dict_to_tensordict

    flag("weigh_samples", weigh_samples)
    function("versions", versions)
    texts("uids", uids, none=True)
    found = _rows(groups, null_reward, ("error", "drop"), "turn_roles", prompt=True)
    uids = [group.id for group, _ in found] if uids is None else uids
    if len(uids) != len(found):
        raise ValueError(f"uids: {len(uids)} texts for {len(found)} groups: want one for each group")
    if twice := [uid for uid, n in Counter(uids).items() if n > 1]:
        raise ValueError(f"{twice[0]} is the uid of several groups, and verl would take them for one: pass uids=, a different text for each group")
    keys, fields, tags = [], [], []
    for uid, (_, rows) in zip(uids, found):
        tokens, sample = [int(np.count_nonzero(row["loss_mask"])) for row in rows], [row["sample_index"] for row in rows]
        n = max(1, len(set(sample)))
        shares = loss_weights(tokens, sample, "seq-mean-token-mean", scale="mean", rows=n, samples=n)
        for row, share in zip(rows, shares.tolist()):
            keys.append(f"{uid}_{row['sample_index']}_{row['segment_index']}")
            field, tag = _verl_row(uid, row, versions, share if weigh_samples else None)
            fields.append(field)
            tags.append(tag)
    return {"keys": keys, "fields": list_of_dict_to_tensordict(fields) if fields else None, "tags": tags}


def _verl_row(uid: str, row: Row, versions: Versions, share: float | None) -> tuple[dict[str, Any], dict[str, Any]]:
    import torch

    ids, at = torch.tensor(row["input_ids"], dtype=torch.int64), row["prompt_length"]
    mask = torch.tensor(row["loss_mask"][at:], dtype=torch.int64)
    score = torch.zeros(len(mask))
    score[-1] = row["reward"]
    oldest, newest = _bounds(row, versions)
    steps = {"min_global_steps": oldest, "max_global_steps": newest}
    fields = {
        "uid": uid, "session_id": row["sample_index"], "global_steps": oldest + 1, "num_turns": len(row["turn_roles"]),
        "prompts": ids[:at], "responses": ids[at:], "input_ids": ids, "position_ids": torch.arange(len(ids)),
        "response_mask": mask, "loss_mask": mask, "rollout_log_probs": torch.tensor(row["logprobs"][at:]), "rm_scores": score,
        "multi_modal_inputs": {}, "extra_fields": {**steps, "reward_extra_info": {}},
    }  # fmt: skip
    if row.get("routed_experts") is not None:
        fields["routed_experts"] = torch.tensor(_routed(row), dtype=torch.int16)
    if share is not None:
        fields["rollout_is_weights"] = torch.full_like(fields["rollout_log_probs"], share)
    lengths = {"prompt_len": at, "response_len": len(mask), "seq_len": len(ids)}
    return fields, {"status": "success", **lengths, "global_steps": oldest + 1, **steps}


def _routed(row: Row) -> Any:
    """Return the routed experts of a row for verl: [T, layers, top_k], with zeros for the last token.

    verl indexes them by the position in the whole row, and its replay masks trailing zeros out
    (experimental/agent_loop/agent_loop.py:129). It would replay a filler in another place.
    """
    experts = row["routed_experts"].copy()
    missing = (experts == -1).any(axis=(1, 2))
    if missing[:-1].any():
        raise ValueError(
            f"row {row['segment_index']} of sample {row['sample_key']} lacks routed experts for token {int(missing.argmax())}, and verl "
            "needs them in all layers of all tokens but the last: pass the groups without this row, or read the run without the column routed_experts"
        )
    experts[missing] = 0
    return experts


def to_slime(groups: Iterable[Group], *, null_reward: str = "error") -> list[dict[str, Any]]:
    """Return a dict for each row, in the form of slime's Sample.to_dict. This writes the file that slime
    trains on in its first step:

        torch.save({"samples": rollout.to_slime(groups)}, "rollouts/0.pt")
        # --load-debug-rollout-data 'rollouts/{rollout_id}.pt' --disable-rewards-normalization

    rollout export --to slime writes the same samples for a finished run. reward is the advantage,
    (r - mean) / (deviation + 1e-6) as in slime, and metadata["raw_reward"] is the reward. slime itself
    normalizes rewards by their position in the batch, and over the whole batch if a sample failed or
    has several rows, so --disable-rewards-normalization is necessary. The rows of a sample have the
    same rollout_id, so slime counts them once in the mean over rollouts. Each step takes
    --global-batch-size samples of the file, and slime drops the rest. weight_versions is empty if the
    versions are unknown.
    """
    out: list[dict[str, Any]] = []
    rollouts = 0
    needed = "truncated", "policy_version_min", "policy_version_max"
    for number, (group, rows) in enumerate(_rows(groups, null_reward, ("error", "drop"), *needed, prompt=True)):
        of_sample: dict[int, int] = {}
        for row, a in zip(rows, _advantages(rows, preset="verl", single="zero").tolist()):
            at, known = row["prompt_length"], [v for v in (row["policy_version_min"], row["policy_version_max"]) if v is not None]
            out.append({
                "group_index": number,
                "index": len(out),
                "rollout_id": of_sample.setdefault(row["sample_index"], rollouts + len(of_sample)),
                "tokens": row["input_ids"].tolist(),
                "response_length": len(row["input_ids"]) - at,
                "reward": a,
                "loss_mask": row["loss_mask"][at:].tolist(),
                "rollout_log_probs": row["logprobs"][at:].tolist(),
                "weight_versions": sorted({str(version) for version in known}, key=int),
                "status": "truncated" if row["truncated"] else "completed",
                "metadata": {"raw_reward": row["reward"], "group_id": group.id, **{name: row[name] for name in ("sample_key", "segment_index")}},
            })  # fmt: skip
        rollouts += len(of_sample)
    return out


def to_tinker(groups: Iterable[Group], *, null_reward: str = "error") -> list[Any]:
    """Return a tinker.Datum for each row, for the loss functions importance_sampling and ppo:

        training_client.forward_backward(rollout.to_tinker(groups), loss_fn="importance_sampling")

    The advantage is reward - mean, as in tinker_cookbook (rl/data_processing.py:25). It is 0 on tokens
    that are not trained on. Tinker sums the loss over all tokens, so the rows of a sample weigh as one
    row would. A Datum has no policy version: to drop old rows, read the run with
    Where(policy_version=..., max_staleness=...).
    """
    import tinker

    out: list[Any] = []
    for _, rows in _rows(groups, null_reward, ("error", "drop")):
        for row, a in zip(rows, _advantages(rows, center=True).tolist()):
            if not row["loss_mask"][1:].any():
                continue  # a Datum has no place for the first token as a target
            ids = row["input_ids"].astype(np.int64)
            inputs = {
                "target_tokens": ids[1:],
                "logprobs": np.asarray(row["logprobs"][1:], dtype=np.float32),
                "advantages": (a * row["loss_mask"][1:]).astype(np.float32),
            }
            out.append(tinker.Datum(model_input=tinker.ModelInput.from_ints(ids[:-1].tolist()), loss_fn_inputs=inputs))
    return out


def _bounds(row: Row, versions: Versions) -> tuple[int, int]:
    """Return what versions returns for a row, and check it."""
    found: Any = versions(row)
    try:
        oldest, newest = map(operator.index, found)
    except (TypeError, ValueError):
        oldest, newest = 1, 0
    if oldest > newest:
        raise ValueError(f"versions: returned {found!r} for a row of sample {row['sample_key']}: must be the oldest and the newest version, such as (6, 7)")
    return oldest, newest


def _rows(groups: Iterable[Group], null_reward: str, allowed: tuple[str, ...], *more: str, prompt: bool = False) -> list[tuple[Group, list[Row]]]:
    """Return each group, and its rows that a trainer gets.

    more: the columns that this trainer needs in addition. prompt: the trainer needs a prompt in each row.
    """
    one_of("null_reward", null_reward, allowed)
    instance("groups", groups, Iterable, "a list of groups, such as a Dataset")
    out = []
    for group in groups:
        instance("groups", group, Group, "a list of groups, such as a Dataset")
        for name in (*_NEEDED, *more):
            if any(name not in row for row in group.rows):
                raise ValueError(f"group {group.id}: its rows have no column {name}, and the trainer needs it: add it to columns=")
        rows = [row for row in group.rows if row["loss_mask"].any()]
        for row in rows:
            sample = f"group {group.id}: sample {row['sample_key']}"
            if unscored(row) and null_reward == "error":
                raise ValueError(
                    f"{sample} has no reward: pass null_reward='drop' to drop such samples, or score the run again with rollout rescore"
                )
            if not unscored(row) and not math.isfinite(row["reward"]):
                raise ValueError(f"{sample}: reward {row['reward']}: must be finite")
            if prompt and not row["prompt_length"]:
                raise ValueError(f"{sample} has a row without a prompt, and this trainer needs one: pass the groups without this sample")
        out.append((group, rows if null_reward == "zero" else [row for row in rows if not unscored(row)]))
    return out


def _rewards(rows: Sequence[Row]) -> Floats:
    """Return the rewards of the scored samples of a group, one per sample."""
    return np.array(list({row["sample_index"]: row["reward"] for row in rows if not unscored(row)}.values()), dtype=np.float64)


def _advantages(rows: Sequence[Row], center: bool = False, **formula: Any) -> Floats:
    """Return the advantage of each row of a group. An unscored sample and a sample that is alone have 0."""
    reward = np.array([math.nan if unscored(row) else row["reward"] for row in rows], dtype=np.float64)
    sample = np.array([row["sample_index"] for row in rows], dtype=np.int64)
    formula = {"single": "zero", "null": "zero", **formula}
    found: Floats = (advantages.dr_grpo if center else advantages.grpo)(reward, np.zeros_like(sample), sample, **formula)
    return found
