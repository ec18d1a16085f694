"""The filters, the groups that they keep, and the places of the rows in these groups.

A filter drops groups, or samples with all their rows. Dataset.counts has the numbers of dropped
samples and groups under the name of the filter.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rollout._args import flag, integer, texts
from rollout._arrays import Bools, Floats, Ints
from rollout._types import Group, Row
from rollout.errors import SEE_VERIFY, CorruptError
from rollout.runs._shardfile import cut
from rollout.runs._store import each
from rollout.runs.index import EMPTY, FAILED, ROWS, SUPERSEDED, Index, Samples, Span
from rollout.runs.shards import Files

Policy = Literal["keep", "drop"]

GRADES = ("unverified", "count_verified", "exact")
"""The values of the column verification, from the lowest grade to the highest."""
STATUSES = ("completed", "truncated", "max_steps")
"""The values of the column status. Samples that were canceled or failed with an error have no
rows."""
FLAGS = ("cut", "client_tool_context", "censored", "surplus_logprobs", "realigned", "reattached", "length", "spliced", "after_stop", "padded_id")
"""The values of the column flags. GRADES, STATUSES and FLAGS are complete: a later schema can add
columns, but not values."""

Counts = dict[str, dict[str, int]]
"""The numbers of dropped groups, samples and rows, by reason."""


@dataclass(frozen=True)
class Where:
    """The filters of a dataset. By default, only the filters `keep` and `missing` drop anything.

    Sample filters check every row of a sample, and drop the whole sample if one row fails the
    check. With segments=True, they drop only this row. Sample filters run first, in the order
    below. The group filters then check what remains of each group. A sample or group is counted
    under the first filter that drops it.
    """

    # Sample filters.
    keep: Policy = "drop"
    """Drop samples that have a row with the value false in the column keep. A null counts as
    true."""
    verification: Literal["unverified", "count_verified", "exact"] = "unverified"
    """The lowest grade that a row can have."""
    status: Collection[str] | None = None
    """The accepted values of the column status, such as {"completed", "max_steps"}; see STATUSES."""
    truncated: Policy = "keep"
    """Drop samples with a row that was cut or that ended at the token limit, according to the
    column truncated."""
    flags: Collection[str] = ()
    """Drop samples with a row that has one of these flags, such as {"cut"}; see FLAGS."""
    min_tokens: int = 0
    """The minimum length of every row (T)."""
    max_tokens: int | None = None
    """The maximum length of every row (T)."""
    policy_version: int | None = None
    """The trainer's current policy version. It must be set if max_staleness is set."""
    max_staleness: int | None = None
    """Drop samples with a token sampled by a version below policy_version - max_staleness."""
    unknown_version: Policy | None = None
    """Whether to drop samples with a row whose version is unknown. It must be set if
    max_staleness is set."""
    null_reward: Policy = "keep"
    """Drop samples without a reward. A null reward is unknown, not zero."""
    segments: bool = False
    """If true, the sample filters drop single rows instead of whole samples."""

    # Group filters.
    missing: Policy = "drop"
    """Drop groups with samples that are not in the log, because they were cut or not yet
    collected."""
    failed: Policy = "keep"
    """Drop groups that contain a sample that failed or was committed without a row."""
    partial: Policy = "keep"
    """Drop groups from which a sample filter has dropped a sample."""
    reward_variance: bool = False
    """Drop groups with fewer than two known rewards, or with equal rewards, because their advantages
    are 0. The reward of a sample is the reward of its first row."""

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
                    # Do not suggest a value if the word is part of several values: "verified" is
                    # part of "unverified", which is its opposite.
                    near = [k for k in known if str(word) in k] or difflib.get_close_matches(str(word), known, 1)
                    meant = f"; did you mean {near[0]!r}?" if len(near) == 1 else ""
                    raise ValueError(f"{name}={word!r}: must be one of {', '.join(known)}{meant}")
        for name in ("keep", "truncated", "null_reward", "missing", "failed", "partial"):
            if getattr(self, name) not in ("keep", "drop"):
                raise ValueError(f"{name}={getattr(self, name)!r}: must be 'keep' or 'drop'")
        if self.max_staleness is not None:
            if self.policy_version is None:
                raise ValueError("max_staleness needs policy_version, the trainer's current version")
            if self.unknown_version not in ("keep", "drop"):
                raise ValueError("max_staleness needs unknown_version='keep' or 'drop', for rows whose policy version is unknown")
        elif self.unknown_version is not None or self.policy_version is not None:
            raise ValueError("policy_version and unknown_version need max_staleness")

    def name(self) -> str:
        """Return the non-default filters as text. Equal filters return equal text."""
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
        """For each filter, return a mask of the rows in a batch that it drops, shape [rows]."""
        import pyarrow.compute as pc  # uses 8 MB of memory, and only filters need it

        bad: dict[str, Bools] = {}
        if self.keep == "drop":
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
            version = pc.fill_null(batch["policy_version_min"], -1).to_numpy(zero_copy_only=False).astype(np.int64)
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
    """Return a mask of the lists in a column that contain any of the words."""
    import pyarrow.compute as pc

    hit = bools(pc.is_in(column.flatten(), value_set=pa.array(sorted(words), pa.string())))
    out = np.zeros(len(column), dtype=bool)
    out[pc.list_parent_indices(column).to_numpy(zero_copy_only=False)[hit]] = True
    return out


def last(column: pa.Array) -> Ints:
    """Return the last number in each list, or 0 if the list is empty. In the column turn_offsets,
    the last number is T."""
    ends = column.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    values = column.values.to_numpy(zero_copy_only=False)
    out = np.zeros(len(column), dtype=np.int64)
    full = ends[1:] > ends[:-1]
    out[full] = values[ends[1:][full] - 1]
    return out


SAMPLE_REASONS = (
    *("keep", "verification", "status", "truncated", "flags"),
    *("min_tokens", "max_tokens", "max_staleness", "unknown_version", "null_reward"),
)
GROUP_REASONS = ("missing", "failed", "no_rows", "partial", "reward_variance")
"""The reasons for dropping a group. "no_rows" means that no sample of the group has a row
left."""


@dataclass
class Verdict:
    """The filters' decisions on the samples of one shard, in order."""

    reason: npt.NDArray[np.int8]
    """0 if the sample is kept. If the sample is dropped for SAMPLE_REASONS[i], the value is 1 + i."""
    reward: Floats
    """The reward of the sample's first row. It is NaN if the reward is null or if no filter needs
    it."""
    left_out: dict[str, int]
    """If Where.segments is true, the number of rows that were dropped from kept samples, by
    reason."""
    mask: Bools | None
    """A mask of the rows to keep, from the first row of the shard to the last row of the samples.
    None: keep all rows of the kept samples."""
    rows: Ints
    """How many rows the filters keep in each sample."""


def judge(files: Files, number: int, part: Samples, where: Where) -> Verdict:
    """Apply the sample filters to consecutive samples of a shard."""
    return files.retry_moved(lambda: _judge(files, number, part, where))


def _judge(files: Files, number: int, part: Samples, where: Where) -> Verdict:
    have = part.outcome == ROWS
    first, length = part.first[have].astype(np.int64), part.rows[have].astype(np.int64)
    names = where.columns()
    number, moved = files.place(number)
    scored = files.scored(number) if {"keep", "reward"} & set(names) else None
    if names == ["keep"] and files.all_null(number, "keep") and (scored is None or not scored[0].decides):
        names = []
    if not names or not len(first):
        return Verdict(np.zeros(len(first), np.int8), np.full(len(first), np.nan), {}, None, length)
    file = files.file(number)
    begin, last = int(first.min()), int((first + length).max())
    code = np.zeros(last, dtype=np.int8)
    reward = np.full(last, np.nan)
    for block, start, end in cut(file.starts.tolist(), begin + moved, last + moved):
        batch = file.column(block, names)
        if batch.num_rows > end - start:
            batch = batch.slice(start - int(file.starts[block]), end - start)
        if scored is not None:
            batch = scored[0].replaced(batch, scored[1][start:end])
        start, end = start - moved, end - moved
        bad = where.bad_rows(batch)
        for reason in reversed(SAMPLE_REASONS):
            if reason in bad:
                code[start:end][bad[reason]] = 1 + SAMPLE_REASONS.index(reason)
        if "reward" in names:
            reward[start:end] = batch["reward"].to_numpy(zero_copy_only=False)
    rewards = reward[first]
    ends = np.column_stack([first, first + length]).ravel()  # the ends of each sample and of the gap after it
    if where.segments:
        kept: Ints = np.add.reduceat(np.append(code == 0, False).astype(np.int64), ends)[::2]
        stays = kept > 0
        alone = np.concatenate([code[a:b] for a, b, s in zip(first, first + length, stays) if s] or [code[:0]])
        left = {SAMPLE_REASONS[r - 1]: int(n) for r, n in enumerate(np.bincount(alone, minlength=1)) if r and n}
        return Verdict(np.where(stays, 0, code[first]).astype(np.int8), rewards, left, code == 0, kept)
    # The reason with the lowest number among a sample's rows. 0 is treated as higher than all
    # reasons.
    lowest = np.minimum.reduceat(np.append(np.where(code == 0, 127, code), 127), ends)[::2]
    return Verdict(np.where(lowest == 127, 0, lowest).astype(np.int8), rewards, {}, None, length)


@dataclass
class Selection:
    """The groups that the filters keep, in the order of their first rows.

    Arrays with one entry per group have the length G. The other arrays have one entry per kept
    sample. The entries of group i are start[i]:start[i+1], sorted by sample_index.
    """

    indexes: Sequence[Index]
    """The contents of each run."""
    files: Files
    """The shards of all runs."""
    run: npt.NDArray[np.int32]
    group: npt.NDArray[np.int32]
    """The number of the group in the Index of its run."""
    size: npt.NDArray[np.int32]
    failed: npt.NDArray[np.int32]
    empty: npt.NDArray[np.int32]
    missing: npt.NDArray[np.int32]
    left_out: npt.NDArray[np.int32]
    start: Ints
    shard: npt.NDArray[np.int32]
    """The number of the shard. Shards are numbered over all runs."""
    first: npt.NDArray[np.int32]
    rows: npt.NDArray[np.int32]
    masks: dict[int, Bools]
    counts: Counts
    kept_rows: int

    def __len__(self) -> int:
        return len(self.group)

    def spans(self, i: int) -> list[Span]:
        """Return the places of the rows of group i."""
        samples = slice(int(self.start[i]), int(self.start[i + 1]))
        out: list[Span] = []
        for shard, first, rows in zip(*(column[samples].tolist() for column in (self.shard, self.first, self.rows)), strict=True):
            out += spans(shard, first, rows, self.masks.get(shard))
        return out

    def assemble(self, i: int, rows: list[Row]) -> Group:
        index = self.indexes[int(self.run[i])]
        return Group(
            run=index.name,
            id=index.group_ids[int(self.group[i])],
            size=int(self.size[i]),
            rows=rows,
            failed=int(self.failed[i]),
            empty=int(self.empty[i]),
            missing=int(self.missing[i]),
            left_out=int(self.left_out[i]),
        )


def spans(shard: int, first: int, rows: int, mask: Bools | None) -> list[Span]:
    """Return the places of the rows of a sample that the mask keeps. The mask has one entry per
    row of the shard."""
    if mask is None:
        return [(shard, first, first + rows)]
    return [(shard, n, n + 1) for n in (first + np.flatnonzero(mask[first : first + rows])).tolist()]


def count(counts: Counts, reason: str, groups: int = 0, samples: int = 0, rows: int = 0) -> None:
    """Add numbers to the counts of a reason."""
    if groups or samples or rows:
        had = counts.setdefault(reason, {"groups": 0, "samples": 0, "rows": 0})
        for name, n in (("groups", groups), ("samples", samples), ("rows", rows)):
            had[name] += int(n)


def once(run: str, part: Samples) -> None:
    """Raise CorruptError if the log contains the rows of a sample twice, because the sample would
    be trained on twice."""
    at = np.flatnonzero(part.outcome == ROWS)
    at = at[np.lexsort((part.index[at], part.group[at]))]
    again = (np.diff(part.group[at]) == 0) & (np.diff(part.index[at]) == 0)
    if again.any():
        keys, times = np.unique(part.key[at], return_counts=True)
        if times.max() > 1:
            key = keys[int(times.argmax())].decode()
            raise CorruptError(f"{run}: the log contains rows of sample {key} more than once{SEE_VERIFY}")


@dataclass
class GroupFacts:
    """The input of the group filters.

    The first four arrays have one entry per group, shape [G]. The last three arrays have one
    entry per sample that the sample filters keep.
    """

    missing: Ints
    failed: Ints
    empty: Ints
    left_out: Ints
    group: Ints
    """The index of the sample's group."""
    rows: Ints
    """How many rows of the sample the filters have kept."""
    reward: Floats


def filter_groups(where: Where, facts: GroupFacts, counts: Counts) -> Bools:
    """Apply the group filters, and count the groups that they drop. Return a mask of the groups
    to keep, shape [G].

    This function filters both finished runs and runs in progress.
    """
    total = len(facts.missing)
    samples = np.bincount(facts.group, minlength=total)
    rows = np.bincount(facts.group, weights=facts.rows, minlength=total)
    tests: dict[str, bool | Bools] = {
        "missing": where.missing == "drop" and facts.missing > 0,
        "failed": where.failed == "drop" and facts.failed + facts.empty > 0,
        "no_rows": samples == 0,
        "partial": where.partial == "drop" and facts.left_out > 0,
        "reward_variance": where.reward_variance and ~variance(facts.group, facts.reward, total),
    }
    keep = np.ones(total, dtype=bool)
    for name in GROUP_REASONS:
        hit = keep & tests[name]
        if hit.any():  # most calls are for the few groups of one commit, and drop no group
            count(counts, name, int(hit.sum()), int(samples[hit].sum()), int(rows[hit].sum()))
            keep &= ~hit
    return keep


def variance(group: Ints, reward: Floats, total: int) -> Bools:
    """Return a mask of the groups with at least two different known rewards, shape [total]."""
    known = ~np.isnan(reward)
    low, high = np.full(total, np.inf), np.full(total, -np.inf)
    np.minimum.at(low, group[known], reward[known])
    np.maximum.at(high, group[known], reward[known])
    return high > low


def select(indexes: Sequence[Index], files: Files, where: Where) -> Selection:
    """Apply all filters to all samples of the runs."""
    counts: Counts = {}
    columns = []
    base_group, base_shard = 0, 0
    masks: dict[int, Bools] = {}
    for index in indexes:
        part = index.samples
        once(index.run_dir, part)
        reason = np.zeros(len(part), dtype=np.int64)
        reward = np.full(len(part), np.nan)
        kept = part.rows.astype(np.int64)
        placed = np.flatnonzero(part.shard >= 0)
        ends = np.searchsorted(part.shard[placed], np.arange(len(index.shards) + 1))  # samples are in the order of their shards
        parts = [placed[begin:end] for begin, end in zip(ends[:-1], ends[1:])]

        def judged(number: int, part: Samples = part, parts: list[Ints] = parts, base: int = base_shard) -> Verdict:
            return judge(files, base + number, Samples(*(c[parts[number]] for c in vars(part).values())), where)

        for number, verdict in enumerate(each(index.run_dir, judged, range(len(index.shards)))):
            at = parts[number]
            reason[at], reward[at], kept[at] = verdict.reason, verdict.reward, verdict.rows
            for name, n in verdict.left_out.items():
                count(counts, name, rows=n)
            if verdict.mask is not None:
                masks[base_shard + number] = verdict.mask
        shards = np.where(part.shard < 0, -1, part.shard + base_shard)
        columns.append((part.group + base_group, part.index, shards, part.first, part.rows, part.outcome, reason, reward, kept))
        base_group += len(index.group_ids)
        base_shard += len(index.shards)
    group, at, shard, first, rows, outcome, reason, reward, kept = (np.concatenate(c) for c in zip(*columns, strict=True))
    total = base_group
    size = np.concatenate([np.asarray(x.group_sizes, dtype=np.int64) for x in indexes])

    def per_group(which: Bools) -> Ints:
        return np.bincount(group[which], minlength=total)

    out = (outcome == ROWS) & (reason > 0)
    for r in np.unique(reason[out]).tolist():
        hit = out & (reason == r)
        count(counts, SAMPLE_REASONS[r - 1], samples=int(hit.sum()), rows=int(rows[hit].sum()))
    left_out, failed, empty = per_group(out), per_group(outcome == FAILED), per_group(outcome == EMPTY)
    missing = np.maximum(0, size - per_group(outcome != SUPERSEDED))
    stays = (outcome == ROWS) & (reason == 0)
    facts = GroupFacts(missing, failed, empty, left_out, group[stays], kept[stays], reward[stays])
    keep = filter_groups(where, facts, counts)

    s = np.flatnonzero(stays & keep[group])
    s = s[np.lexsort((at[s], group[s]))]
    # Order the groups by their first rows.
    numbers, begin, n = np.unique(group[s], return_index=True, return_counts=True)
    place = shard[s].astype(np.int64) << 32 | first[s]
    order = np.argsort(np.minimum.reduceat(place, begin), kind="stable") if len(s) else np.empty(0, np.int64)
    numbers, begin, n = numbers[order], begin[order], n[order]
    start = np.concatenate([[0], np.cumsum(n)]).astype(np.int64)
    s = s[np.repeat(begin - start[:-1], n) + np.arange(len(s))]
    bases = np.cumsum([0, *(len(x.group_ids) for x in indexes)])
    run: Ints = np.asarray(np.searchsorted(bases, numbers, side="right") - 1)
    small = np.int32
    return Selection(
        indexes=indexes,
        files=files,
        run=run.astype(small),
        group=(numbers - bases[run]).astype(small),
        size=size[numbers].astype(small),
        failed=failed[numbers].astype(small),
        empty=empty[numbers].astype(small),
        missing=missing[numbers].astype(small),
        left_out=left_out[numbers].astype(small),
        start=start,
        shard=shard[s].astype(small),
        first=first[s].astype(small),
        rows=rows[s].astype(small),
        masks=masks,
        counts=counts,
        kept_rows=int(kept[s].sum()),
    )
