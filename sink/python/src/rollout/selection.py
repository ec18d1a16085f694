"""The kept groups of a dataset and the places of their rows: the index after the filters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rollout.errors import CorruptError
from rollout.files import Files
from rollout.filters import Bools, Counts, Where
from rollout.index import EMPTY, FAILED, ROWS, SUPERSEDED, Index, Ints, Samples, Span
from rollout.shardfile import cut

SAMPLE_REASONS = (
    *("keep", "verification", "status", "truncated", "flags"),
    *("min_tokens", "max_tokens", "max_staleness", "unknown_version", "null_reward"),
)
GROUP_REASONS = ("missing", "failed", "no_rows", "partial", "reward_variance")
"""no_rows: no sample of the group has a row left."""


@dataclass
class Verdict:
    """The filters' decisions on the samples of one shard, in order."""

    reason: npt.NDArray[np.int8]
    """1 + the index in SAMPLE_REASONS; 0: the sample is kept."""
    reward: npt.NDArray[np.float64]
    """The reward of the sample's first row; NaN if it is null or no filter needs it."""
    left_out: dict[str, int]
    """Dropped rows of kept samples by reason, with Where.segments."""
    mask: Bools | None
    """The kept rows of the shard up to the samples' last row; None: all rows of kept samples."""
    rows: Ints
    """The number of rows of each sample that the row filters keep."""


def judge(files: Files, number: int, part: Samples, where: Where) -> Verdict:
    """Apply the sample filters to consecutive samples of a shard."""
    return files.stable(lambda: _judge(files, number, part, where))


def _judge(files: Files, number: int, part: Samples, where: Where) -> Verdict:
    have = part.outcome == ROWS
    first, length = part.first[have].astype(np.int64), part.rows[have].astype(np.int64)
    names = where.columns()
    number, moved = files.place(number)
    if names == ["keep"] and files.all_null(number, "keep"):
        names = []
    if not names or not len(first):
        return Verdict(np.zeros(len(first), np.int8), np.full(len(first), np.nan), {}, None, length)
    file = files.file(number)
    begin, last = int(first.min()), int((first + length).max())
    code = np.zeros(last, dtype=np.int8)
    reward = np.full(last, np.nan)
    for block, start, end in cut(file.starts.tolist(), begin + moved, last + moved):
        more = [] if "policy_version_min" not in names else ["versions", "loss_mask"]
        batch = file.column(block, names, instead_of={"policy_version_min": more})
        if batch.num_rows > end - start:
            batch = batch.slice(start - int(file.starts[block]), end - start)
        start, end = start - moved, end - moved
        bad = where.bad_rows(batch)
        for reason in reversed(SAMPLE_REASONS):
            if reason in bad:
                code[start:end][bad[reason]] = 1 + SAMPLE_REASONS.index(reason)
        if "reward" in names:
            reward[start:end] = batch["reward"].to_numpy(zero_copy_only=False)
    rewards = reward[first]
    ends = np.column_stack([first, first + length]).ravel()  # ends of each sample, and of the gap after it
    if where.segments:
        kept: Ints = np.add.reduceat(np.append(code == 0, False).astype(np.int64), ends)[::2]
        stays = kept > 0
        alone = np.concatenate([code[a:b] for a, b, s in zip(first, first + length, stays) if s] or [code[:0]])
        left = {SAMPLE_REASONS[r - 1]: int(n) for r, n in enumerate(np.bincount(alone, minlength=1)) if r and n}
        return Verdict(np.where(stays, 0, code[first]).astype(np.int8), rewards, left, code == 0, kept)
    # The first reason of a sample's rows; 0 is treated as higher than all reasons.
    lowest = np.minimum.reduceat(np.append(np.where(code == 0, 127, code), 127), ends)[::2]
    return Verdict(np.where(lowest == 127, 0, lowest).astype(np.int8), rewards, {}, None, length)


@dataclass
class Selection:
    """The kept groups, in the order of their first rows.

    Arrays over groups have length G. The samples of group i are start[i]:start[i+1], by
    sample_index, only those with rows.
    """

    run: npt.NDArray[np.int32]
    group: npt.NDArray[np.int32]
    """Index of the group in its run's Index."""
    size: npt.NDArray[np.int32]
    failed: npt.NDArray[np.int32]
    empty: npt.NDArray[np.int32]
    missing: npt.NDArray[np.int32]
    left_out: npt.NDArray[np.int32]
    start: Ints
    shard: npt.NDArray[np.int32]
    """Number of the shard over all runs."""
    first: npt.NDArray[np.int32]
    rows: npt.NDArray[np.int32]
    masks: dict[int, Bools]
    counts: Counts

    def __len__(self) -> int:
        return len(self.group)

    def spans(self, i: int) -> list[Span]:
        """Return the places of the rows of group i."""
        samples = slice(int(self.start[i]), int(self.start[i + 1]))
        out: list[Span] = []
        for shard, first, rows in zip(*(column[samples].tolist() for column in (self.shard, self.first, self.rows)), strict=True):
            out += spans(shard, first, rows, self.masks.get(shard))
        return out


def spans(shard: int, first: int, rows: int, mask: Bools | None) -> list[Span]:
    """Return the places of a sample's rows that a mask of the shard's rows keeps."""
    if mask is None:
        return [(shard, first, first + rows)]
    return [(shard, n, n + 1) for n in (first + np.flatnonzero(mask[first : first + rows])).tolist()]


def count(counts: Counts, reason: str, groups: int = 0, samples: int = 0, rows: int = 0) -> None:
    """Add to the counts of a reason."""
    if groups or samples or rows:
        had = counts.setdefault(reason, {"groups": 0, "samples": 0, "rows": 0})
        for name, n in (("groups", groups), ("samples", samples), ("rows", rows)):
            had[name] += int(n)


def varies(reward: npt.NDArray[np.float64]) -> bool:
    """Report whether the known rewards of a group differ."""
    known = reward[~np.isnan(reward)]
    return known.size > 1 and bool((known != known[0]).any())


def once(run: str, part: Samples) -> None:
    """Raise CorruptError if a sample has rows in two places: it would be trained twice."""
    at = np.flatnonzero(part.outcome == ROWS)
    at = at[np.lexsort((part.index[at], part.group[at]))]
    again = (np.diff(part.group[at]) == 0) & (np.diff(part.index[at]) == 0)
    if again.any():
        keys, times = np.unique(part.key[at], return_counts=True)
        if times.max() > 1:
            key = keys[int(times.argmax())].decode()
            raise CorruptError(f"{run}: the log has rows of sample {key} twice; see rollout verify")


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
        ends = np.searchsorted(part.shard[placed], np.arange(len(index.shards) + 1))  # shards are in order
        for number in range(len(index.shards)):
            at = placed[ends[number] : ends[number + 1]]
            here = Samples(*(c[at] for c in vars(part).values()))
            verdict = judge(files, base_shard + number, here, where)
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
    with_rows = per_group(stays)

    keep = np.ones(total, dtype=bool)
    tests = {
        "missing": (missing > 0) if where.missing == "drop" else None,
        "failed": (failed + empty > 0) if where.failed == "drop" else None,
        "no_rows": with_rows == 0,
        "partial": (left_out > 0) if where.partial == "drop" else None,
        "reward_variance": ~variance(group[stays], reward[stays], total) if where.reward_variance else None,
    }
    rows_of = np.bincount(group[stays], weights=kept[stays], minlength=total)
    for name in GROUP_REASONS:
        test = tests[name]
        if test is not None:
            hit = keep & test
            count(counts, name, int(hit.sum()), int(with_rows[hit].sum()), int(rows_of[hit].sum()))
            keep &= ~hit

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
    )


def variance(group: npt.NDArray[np.int32], reward: npt.NDArray[np.float64], total: int) -> Bools:
    """Return which groups have differing known rewards, shape [total]."""
    known = ~np.isnan(reward)
    low, high = np.full(total, np.inf), np.full(total, -np.inf)
    np.minimum.at(low, group[known], reward[known])
    np.maximum.at(high, group[known], reward[known])
    return high > low
