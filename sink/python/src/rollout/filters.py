"""Filters on samples and groups of a dataset.

A filter decides on a sample with all its rows, or on a group. Dropped samples and groups are counted under
its name in Dataset.counts.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rollout._args import flag, integer, texts

Policy = Literal["keep", "drop"]
Bools = npt.NDArray[np.bool_]

GRADES = ("unverified", "count_verified", "exact")
"""Values of the column verification, from least to best proven."""
STATUSES = ("completed", "truncated", "max_steps")
"""Values of the column status. Samples that were canceled or ended in an error have no rows."""
FLAGS = ("cut", "client_tool_context", "censored", "surplus_logprobs", "realigned", "reattached", "length", "spliced", "after_stop", "padded_id")
"""Values of the column flags. The lists are closed: a later schema only adds columns."""

Counts = dict[str, dict[str, int]]
"""By reason, the numbers of dropped groups, samples and rows."""


@dataclass(frozen=True)
class Where:
    """The filters of a dataset. By default every field except keep and missing keeps
    everything.

    Sample filters check every row of a sample, and drop the whole sample if one row fails. With
    segments=True they drop only that row. They run first, in this order. Then the group filters
    check what is left. A sample or group is counted under the first reason.
    """

    # Sample filters.
    keep: Policy = "drop"
    """Drop samples with a row whose column keep is false; null counts as true."""
    verification: Literal["unverified", "count_verified", "exact"] = "unverified"
    """The lowest accepted grade of a row."""
    status: Collection[str] | None = None
    """The accepted values of the column status, such as {"completed", "max_steps"}; see STATUSES."""
    truncated: Policy = "keep"
    """Drop samples with a row whose end the policy did not choose (column truncated)."""
    flags: Collection[str] = ()
    """Drop samples with a row that has one of these flags, such as {"cut"}; see FLAGS."""
    min_tokens: int = 0
    """The minimum length of every row (T)."""
    max_tokens: int | None = None
    """The maximum length of every row (T)."""
    policy_version: int | None = None
    """The trainer's current version; required for max_staleness."""
    max_staleness: int | None = None
    """Drop samples with a token sampled by a version below policy_version - max_staleness."""
    unknown_version: Policy | None = None
    """Drop samples with a row of unknown version; required with max_staleness."""
    null_reward: Policy = "keep"
    """Drop samples without a reward. Null is unknown, not zero."""
    segments: bool = False
    """Drop single rows instead of whole samples."""

    # Group filters.
    missing: Policy = "drop"
    """Drop groups with samples that are not in the log: not collected yet, or cut."""
    failed: Policy = "keep"
    """Drop groups with a sample that failed or was committed without a row."""
    partial: Policy = "keep"
    """Drop groups that have lost a sample to a filter above."""
    reward_variance: bool = False
    """Drop groups whose known rewards are all equal, or fewer than two: their advantages are
    zero. The reward of a sample is the reward of its first row."""

    def __post_init__(self) -> None:
        for name in ("status", "flags"):
            value = getattr(self, name)
            if isinstance(value, str):
                raise TypeError(f"{name}={value!r}: must be a set of words, such as {{{value!r}}}")
            texts(name, value, none=name == "status")
        for name in ("min_tokens", "max_tokens", "policy_version", "max_staleness"):
            integer(name, getattr(self, name), 0, none=name != "min_tokens")
        for name in ("segments", "reward_variance"):
            flag(name, getattr(self, name))
        for name, given, known in (
            ("verification", (self.verification,), GRADES),
            ("status", self.status or (), STATUSES),
            ("flags", self.flags, FLAGS),
        ):
            for word in given:
                if word not in known:
                    # A word that is part of two values, such as verified, can mean the opposite of
                    # one.
                    near = [k for k in known if str(word) in k] or difflib.get_close_matches(str(word), known, 1)
                    meant = f"; did you mean {near[0]!r}?" if len(near) == 1 else ""
                    raise ValueError(f"{name}={word!r}: must be one of {', '.join(known)}{meant}")
        for name in ("keep", "truncated", "null_reward", "missing", "failed", "partial"):
            if getattr(self, name) not in ("keep", "drop"):
                raise ValueError(f"{name}={getattr(self, name)!r}: must be 'keep' or 'drop'")
        if self.max_staleness is not None:
            if self.policy_version is None:
                raise ValueError("max_staleness needs policy_version, the version that the trainer has now")
            if self.unknown_version not in ("keep", "drop"):
                raise ValueError("max_staleness needs unknown_version: 'keep' or 'drop' rows whose policy version is unknown")
        elif self.unknown_version is not None or self.policy_version is not None:
            raise ValueError("policy_version and unknown_version need max_staleness")

    def name(self) -> str:
        """Return the non-default filters as text; equal filters have equal texts."""
        said = []
        for f in fields(self):
            value = getattr(self, f.name)
            if value != f.default:
                said.append(f"{f.name}={sorted(value) if isinstance(value, Collection) and not isinstance(value, str) else value!r}")
        return ", ".join(said)

    def columns(self) -> list[str]:
        """Return the columns that the sample filters read."""
        use = {
            "keep": self.keep == "drop",
            "verification": self.verification != GRADES[0],
            "status": self.status is not None,
            "truncated": self.truncated == "drop",
            "flags": bool(self.flags),
            "turn_offsets": self.min_tokens > 0 or self.max_tokens is not None,
            "policy_version_min": self.max_staleness is not None,
            "reward": self.null_reward == "drop" or self.reward_variance,
        }
        return [name for name, used in use.items() if used]

    def bad_rows(self, batch: pa.RecordBatch) -> Mapping[str, Bools]:
        """Return, by filter, which rows of a batch to drop, shape [rows]."""
        import pyarrow.compute as pc  # 8 MB that only filters need

        have = set(batch.schema.names)
        bad: dict[str, Bools] = {}
        if self.keep == "drop" and "keep" in have:  # since schema version 2
            bad["keep"] = bools(pc.fill_null(pc.invert(batch["keep"]), False))
        if self.verification != GRADES[0]:
            good = pa.array(GRADES[GRADES.index(self.verification) :])
            bad["verification"] = ~bools(pc.is_in(batch["verification"], value_set=good))
        if self.status is not None:
            bad["status"] = ~bools(pc.is_in(batch["status"], value_set=pa.array(sorted(self.status), pa.string())))
        if self.truncated == "drop":
            bad["truncated"] = bools(batch["truncated"])
        if self.flags:
            bad["flags"] = has_any(batch["flags"], self.flags)
        if self.min_tokens > 0 or self.max_tokens is not None:
            length = last(batch["turn_offsets"])
            if self.min_tokens > 0:
                bad["min_tokens"] = length < self.min_tokens
            if self.max_tokens is not None:
                bad["max_tokens"] = length > self.max_tokens
        if self.max_staleness is not None and self.policy_version is not None:
            version = oldest(batch)
            unknown = version < 0
            if self.unknown_version == "drop":
                bad["unknown_version"] = unknown
            bad["max_staleness"] = ~unknown & (version < self.policy_version - self.max_staleness)
        if self.null_reward == "drop":
            bad["null_reward"] = bools(pc.is_null(batch["reward"], nan_is_null=True))
        return bad


def bools(column: pa.Array) -> Bools:
    """Return a boolean column without nulls as a numpy array."""
    out: Bools = column.to_numpy(zero_copy_only=False).astype(bool)
    return out


def has_any(column: pa.Array, words: Collection[str]) -> Bools:
    """Return which lists contain one of the words."""
    import pyarrow.compute as pc

    hit = bools(pc.is_in(column.flatten(), value_set=pa.array(sorted(words), pa.string())))
    out = np.zeros(len(column), dtype=bool)
    out[pc.list_parent_indices(column).to_numpy(zero_copy_only=False)[hit]] = True
    return out


def last(column: pa.Array) -> npt.NDArray[np.int64]:
    """Return the last number of each list, or 0 for an empty list; for turn_offsets this is T."""
    ends = column.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    values = column.values.to_numpy(zero_copy_only=False)
    out = np.zeros(len(column), dtype=np.int64)
    full = ends[1:] > ends[:-1]
    out[full] = values[ends[1:][full] - 1]
    return out


def oldest(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Return the lowest policy version of each row, or -1 if a sampled token's version is
    unknown.

    Rows of schema version 1 only have per-token versions, which are all checked.
    """
    if "policy_version_min" in batch.schema.names:
        import pyarrow.compute as pc

        out: npt.NDArray[np.int64] = pc.fill_null(batch["policy_version_min"], -1).to_numpy(zero_copy_only=False).astype(np.int64)
        return out
    out = np.full(batch.num_rows, -1, dtype=np.int64)
    versions, masks = batch["versions"], batch["loss_mask"]
    for i in range(batch.num_rows):
        if versions[i].is_valid:
            sampled = versions[i].values.to_numpy(zero_copy_only=False)[masks[i].values.to_numpy(zero_copy_only=False) == 1]
            out[i] = sampled.min() if sampled.size else -1  # -1 if one is unknown
    return out
