"""The numbers of a group, and an example of its rollouts."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from rollout import _text
from rollout._types import Group, Path, Row
from rollout.runs import log

MAX_TEXT = 20_000
"""The number of characters of an example that are sent: its end."""


def metrics_of(group: Group) -> dict[str, float]:
    """Return the numbers of a group by name. A number that is unknown is left out.

        reward/mean, reward/std, reward/min, reward/max    of the scored samples
        samples/rows, samples/failed, samples/empty        numbers of samples: with rows, failed, without a row
        samples/unscored, samples/truncated                numbers of samples with rows
        length/sampled_tokens, length/calls, length/rows   means per sample
        length/row_tokens, length/row_tokens_max           the mean and the maximum length of a row
        time/seconds                                       the mean duration of a sample
        policy_version                                     the lowest version of any sampled token
    """
    samples: dict[str, list[Row]] = {}
    for row in group.rows:
        samples.setdefault(row["sample_key"], []).append(row)
    every = list(samples.values())
    found: dict[str, Any] = {"samples/rows": len(every), "samples/failed": group.failed, "samples/empty": group.empty}
    if not every:
        return {name: float(value) for name, value in found.items()}
    rewards = np.array([rows[0]["reward"] for rows in every if rows[0]["reward"] is not None], np.float64)
    if rewards.size:
        found |= {"reward/mean": rewards.mean(), "reward/std": rewards.std(), "reward/min": rewards.min(), "reward/max": rewards.max()}
    lengths = [len(row["input_ids"]) for row in group.rows]
    calls = [sum(int(np.count_nonzero(row["turn_roles"] == 1)) for row in rows) for rows in every]
    found |= {
        "samples/unscored": len(every) - rewards.size,
        "samples/truncated": sum(any(row["truncated"] for row in rows) for rows in every),
        "length/sampled_tokens": np.mean([sum(int(row["loss_mask"].sum()) for row in rows) for rows in every]),
        "length/calls": np.mean(calls),
        "length/rows": len(group.rows) / len(every),
        "length/row_tokens": np.mean(lengths),
        "length/row_tokens_max": max(lengths),
        "time/seconds": np.mean([rows[0]["duration_ms"] for rows in every]) / 1000,
    }
    versions = [row["policy_version_min"] for row in group.rows]
    if None not in versions:
        found["policy_version"] = min(versions)
    return {name: float(value) for name, value in found.items()}


def failures_of(run: Path) -> dict[str, float]:
    """Return the number of samples that have failed so far, by class: failures/timeout and so on. It includes
    failures that a later attempt replaced."""
    table = log.table(run, "failures", ["sample_key", "class", "call"])
    if not table.num_rows:
        return {}
    failed = {(key, name) for key, name, call in zip(*(table[c].to_pylist() for c in ("sample_key", "class", "call"))) if call < 0}
    return {f"failures/{name}": float(n) for name, n in sorted(Counter(name for _, name in failed).items())}


def example_of(group: Group, tokenizer: Any) -> str:
    """Return the text of the sample with the lowest reward: its last row. An unscored sample comes last. Raises the
    errors of rollout.decode."""
    row = min(group.rows, key=lambda row: (row["reward"] is None, row["reward"] or 0.0, row["sample_index"], -row["segment_index"]))
    text = _text.decode(row, tokenizer)
    head = f"sample {row['sample_key']}, row {row['segment_index']}, reward {row['reward']}, {row['status']}"
    cut = f"[the first {len(text) - MAX_TEXT} characters are left out]\n" if len(text) > MAX_TEXT else ""
    return f"{head}\n\n{cut}{text[-MAX_TEXT:]}"
