"""Advantages for the samples in a batch. They are computed only from rewards and groups.

Every function takes arrays with one entry per row (B rows) and returns one advantage per row:
numpy float64, or a torch tensor with the dtype and device of the reward if the reward is a
tensor. The arguments have the same names as the entries of a batch:

    a = advantages.grpo(batch["reward"], batch["group"], batch["sample"], preset="trl")

reward  float [B]   NaN if the sample was not scored; see null
group   int [B]     equal for the samples of one group
sample  int [B]     equal for the rows (segments) of one sample, which have the same
                    reward and count once; None: every row is a sample

If a sample was cut into segments, all its rows get the advantage that the sample would have as a
single row.

A preset selects the values that a framework uses for parameters that the papers leave open:

    preset    grpo: epsilon  ddof   one sample in its group   reinforce_plus_plus
    trl             1e-4     1      0                         (TRL has none)
    verl            1e-6     1      its reward                sqrt(var + 1e-8), ddof 1
    openrlhf        1e-9     1      0 (NaN there)             sqrt(max(var, 1e-8)), ddof 0

If there are several reward functions, pass the sum of their rewards.
tests/test_presets.py compares this module with each source: TRL 1.16.0
trl/trainer/grpo_trainer.py:2761-2811 and rloo_trainer.py:1675-1699; verl 0.9.1
verl/trainer/ppo/core_algos.py:268-331, :536-636, :694-731; OpenRLHF 0.11.2
openrlhf/trainer/ppo_utils/experience_maker.py:252-333. epsilon, ddof and single override the
preset.

Two arguments control what happens to samples without a reward or without rows:

null     for samples whose reward is NaN. "error" (the default) raises an error. "zero"
         excludes the sample from the statistics and sets its advantage to 0.0, as TRL
         does. "nan" also excludes the sample, but sets its advantage to NaN. Use it if
         you drop the sample's rows from the loss.
missing  for samples with nothing to train on, because they failed, were committed without
         a row, or were not collected. The argument absent is the number of such samples
         per group, an int or int [B], such as batch["absent"]. "ignore" (the default)
         uses only the other samples. "error" raises an error. A number is used as the
         reward of each missing sample. Samples that were excluded by filters or by
         null_reward="drop" do not count as missing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rollout._args import integer, one_of, real
from rollout._arrays import Floats, Ints, give_back, to_numpy

__all__ = ["dr_grpo", "grpo", "reinforce_plus_plus", "rloo"]

Missing = str | float


@dataclass(frozen=True)
class _Preset:
    epsilon: float
    ddof: int
    single: str  # advantage of a sample alone in its group: zero, or its reward
    batch_epsilon: float = 1e-8
    batch_ddof: int = 1
    floor: bool = False  # True: batch_epsilon is the minimum variance; False: it is added
    # verl adds this value to a number of tokens before it divides by that number (masked_mean,
    # verl/utils/torch_functional.py:308).
    count_epsilon: float = 0.0


_PRESETS = {
    "trl": _Preset(epsilon=1e-4, ddof=1, single="zero"),
    "verl": _Preset(epsilon=1e-6, ddof=1, single="reward", count_epsilon=1e-8),
    "openrlhf": _Preset(epsilon=1e-9, ddof=1, single="zero", batch_ddof=0, floor=True),
}


def grpo(
    reward: Any,
    group: Any,
    sample: Any = None,
    *,
    preset: str = "trl",
    epsilon: float | None = None,
    ddof: int | None = None,
    single: str | None = None,
    absent: Any = None,
    missing: Missing = "ignore",
    null: str = "error",
) -> Any:
    """GRPO: (r - mean of the group) / (standard deviation of the group + epsilon).

    The variance is the sum of squared deviations divided by n - ddof. n is the number of samples
    that count. If a sample is alone in its group, its advantage is 0.0 (single="zero"), or its
    reward divided by 1 + epsilon (single="reward"). Equal rewards result in 0.0, even with
    epsilon=0.

    Reference: Shao et al., DeepSeekMath, https://arxiv.org/abs/2402.03300, equation of
    section 4.1.2.
    """
    p = _preset(preset, epsilon, ddof, single)
    g = _Groups(reward, group, sample, absent, missing, null)
    with np.errstate(invalid="ignore", divide="ignore"):  # epsilon=0
        advantage = np.nan_to_num(g.centred() / (g.deviation(p.ddof) + p.epsilon), nan=0.0)
    return g.give(_alone(g, p, advantage, 1 + p.epsilon))


def dr_grpo(
    reward: Any,
    group: Any,
    sample: Any = None,
    *,
    preset: str = "trl",
    single: str | None = None,
    absent: Any = None,
    missing: Missing = "ignore",
    null: str = "error",
) -> Any:
    """Dr. GRPO: r - mean of the group.

    Dr. GRPO also changes the loss, which is a sum over tokens divided by a constant. See
    loss_weights with mode="seq-mean-token-sum".

    Reference: Liu et al., Understanding R1-Zero-Like Training,
    https://arxiv.org/abs/2503.20783; scale_rewards="none" in TRL,
    norm_adv_by_std_in_grpo=False in verl.
    """
    p = _preset(preset, single=single)
    g = _Groups(reward, group, sample, absent, missing, null)
    return g.give(_alone(g, p, g.centred()))


def rloo(
    reward: Any,
    group: Any,
    sample: Any = None,
    *,
    preset: str = "trl",
    single: str | None = None,
    absent: Any = None,
    missing: Missing = "ignore",
    null: str = "error",
) -> Any:
    """RLOO: r - mean of the other samples in the group = n/(n-1) * (r - mean).

    This matches TRL with normalize_advantages=False, which is TRL's default.

    Reference: Ahmadian et al., Back to Basics, https://arxiv.org/abs/2402.14740.
    """
    p = _preset(preset, single=single)
    g = _Groups(reward, group, sample, absent, missing, null)
    n = g.count
    return g.give(_alone(g, p, g.centred() * n / np.maximum(n - 1, 1)))


def reinforce_plus_plus(
    reward: Any,
    tokens: Any,
    sample: Any = None,
    *,
    group: Any = None,
    preset: str = "verl",
    epsilon: float | None = None,
    ddof: int | None = None,
    null: str = "error",
) -> Any:
    """REINFORCE++: rewards, whitened over all sampled tokens in the batch.

        m = sum(t * r) / N      v = sum(t * (r - m)^2) / (N - ddof)
        a = (r - m) / sqrt(v + epsilon)

    t is the number of sampled tokens in a sample, and N is the number of sampled tokens in the
    batch. preset="openrlhf" divides by sqrt(max(v, epsilon)) instead. The return of every token is
    its sample's reward, without a discount (gamma = 1) and without a KL penalty in the reward.

    tokens is int [B], the number of sampled tokens in each row: batch["tokens"]. Longer samples
    have more weight, as in the sources. If a sample has several segments, they share its weight.

    If group is given, the group's mean reward is subtracted first (REINFORCE++-baseline). If a
    sample is alone in its group, it keeps its reward with preset="verl" and gets 0.0 with
    preset="openrlhf".

    The arguments must cover the whole batch. With several ranks, gather reward and tokens first.

    Reference: Hu et al., REINFORCE++, https://arxiv.org/abs/2501.03262.
    """
    if preset == "trl":
        raise ValueError('preset="trl": TRL has no REINFORCE++; use "verl" or "openrlhf"')
    p = _preset(preset, epsilon, ddof)
    p = replace(
        p,
        batch_epsilon=p.batch_epsilon if epsilon is None else epsilon,
        batch_ddof=p.batch_ddof if ddof is None else ddof,
    )
    rows = to_numpy(reward, "reward", np.float64, -1)
    g = _Groups(reward, np.zeros(len(rows), np.int64) if group is None else group, sample, None, "ignore", null)
    r = g.reward if group is None else _alone(g, p, g.centred())
    t = np.bincount(g.sample_of_row, to_numpy(tokens, "tokens", np.float64, len(rows)), len(r)) * g.known
    if not len(rows):
        return g.give(np.zeros(0))
    total, r = t.sum(), np.where(g.known, r, 0.0)
    if total <= p.batch_ddof:
        raise ValueError(f"tokens: too few sampled tokens to whiten: the batch has {total:.0f}, but needs {p.batch_ddof + 1}")
    centred = r - (t * r).sum() / (total + p.count_epsilon)
    v = (t * centred**2).sum() / (total + p.count_epsilon) * total / (total - p.batch_ddof)
    v = max(v, p.batch_epsilon) if p.floor else v + p.batch_epsilon
    return g.give(centred / np.sqrt(v))


def _preset(name: str, epsilon: float | None = None, ddof: int | None = None, single: str | None = None) -> _Preset:
    one_of("preset", name, _PRESETS)
    if single is not None:
        one_of("single", single, ("zero", "reward"))
    real("epsilon", epsilon, 0, none=True)
    integer("ddof", ddof, none=True)
    if ddof not in (None, 0, 1):
        raise ValueError(f"ddof={ddof!r}: must be 0 or 1")
    p = _PRESETS[name]
    return replace(
        p,
        epsilon=p.epsilon if epsilon is None else epsilon,
        ddof=p.ddof if ddof is None else ddof,
        single=p.single if single is None else single,
    )


def _alone(g: _Groups, p: _Preset, advantage: Floats, scale: float = 1.0) -> Floats:
    """Replace the advantage of a sample if no other sample in its group counts."""
    return np.where(g.count > 1, advantage, g.reward / scale if p.single == "reward" else 0.0)


class _Groups:
    """The reward of each sample, and statistics of its group.

    reward, known, group and count have one entry per sample. sample_of_row maps rows to samples.
    """

    def __init__(self, reward: Any, group: Any, sample: Any, absent: Any, missing: Missing, null: str):
        one_of("null", null, ("error", "zero", "nan"))
        if not isinstance(missing, str):
            real("missing", missing)
        elif missing not in ("ignore", "error"):
            raise ValueError(f"missing={missing!r}: must be 'ignore', 'error' or a reward")
        self.given, self.null = reward, null
        rows = to_numpy(reward, "reward", np.float64, -1)
        n = len(rows)
        groups = to_numpy(group, "group", np.int64, n)
        samples = np.arange(n) if sample is None else to_numpy(sample, "sample", np.int64, n)
        _, first, self.sample_of_row = np.unique(samples, return_index=True, return_inverse=True)
        for name, values in (("reward", rows), ("group", groups)):
            of_sample = values[first][self.sample_of_row]
            different = np.flatnonzero((of_sample != values) & ~(np.isnan(of_sample) & np.isnan(values)))
            if len(different):
                i = int(different[0])
                raise ValueError(f"{name}[{i}] is {values[i]}, but another row of sample {samples[i]} has {of_sample[i]}")
        self.reward: Floats = rows[first]
        if np.isinf(self.reward).any():
            raise ValueError("reward: must be finite, or NaN if the sample was not scored")
        self.known = ~np.isnan(self.reward)
        if null == "error" and not self.known.all():
            raise ValueError(
                f"reward: no value for {int((~self.known).sum())} of {len(self.known)} samples: "
                "drop them when collating (null_reward='drop'), or pass null='zero' or null='nan'"
            )
        _, of_group, self.group = np.unique(groups[first], return_index=True, return_inverse=True)
        self.groups = len(of_group)
        self.absent: Ints = np.zeros(self.groups, np.int64)
        self.absent_reward = 0.0
        if missing != "ignore":
            if absent is None:
                raise ValueError(f"missing={missing!r} needs absent, such as batch['absent']")
            self.absent = np.broadcast_to(to_numpy(absent, "absent", np.int64), n)[first][of_group]
            if (self.absent < 0).any():
                raise ValueError("absent: must not be negative")
            if missing == "error" and self.absent.any():
                raise ValueError(f"missing='error': samples are missing from {np.count_nonzero(self.absent)} of {self.groups} groups "
                                 f"({int(self.absent.sum())} samples in all)")
            if not isinstance(missing, str):
                self.absent_reward = float(missing)
                if not np.isfinite(self.absent_reward):
                    raise ValueError(f"missing={missing!r}: must be 'ignore', 'error' or a finite reward")
        n_known: Any = np.bincount(self.group, self.known.astype(np.float64), self.groups)
        self._n: Floats = n_known + self.absent
        # Means are computed from the differences between the rewards and one sample's reward. So
        # equal rewards give an advantage of exactly 0.
        base = np.zeros(self.groups)
        base[self.group[self.known]] = self.reward[self.known]
        r = np.where(self.known, self.reward - base[self.group], 0.0)
        total = np.bincount(self.group, r, self.groups) + self.absent * (self.absent_reward - base)
        self._mean: Floats = total / np.maximum(self._n, 1)
        self._centred: Floats = r - self._mean[self.group]
        self._absent_centred: Floats = self.absent_reward - base - self._mean
        self.count: Floats = self._n[self.group]

    def centred(self) -> Floats:
        """Return each sample's reward minus the mean of its group."""
        return self._centred

    def deviation(self, ddof: int) -> Floats:
        """Return the standard deviation of each sample's group. It is 0.0 if at most `ddof`
        samples count in the group."""
        squares = np.where(self.known, self._centred, 0.0) ** 2
        total = np.bincount(self.group, squares, self.groups) + self.absent * self._absent_centred**2
        return np.asarray(np.sqrt(total / np.maximum(self._n - ddof, 1))[self.group])

    def give(self, advantage: Floats) -> Any:
        """Return one advantage per row, with the type of the argument reward."""
        unknown = 0.0 if self.null == "zero" else np.nan
        return give_back(np.where(self.known, advantage, unknown)[self.sample_of_row], self.given)
