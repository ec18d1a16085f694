"""check never accepts log-probabilities that an engine renormalized after truncation, and names
the setting; noise is not mistaken for truncation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rollout import Group, check

V, T = 400, 160


def model(sharp: float, memory: int = 24) -> Any:
    """Return a model of logits from the last token: some contexts are certain, some open."""
    random = np.random.default_rng(3)
    scale = np.where(random.random(memory) < 0.5, sharp, sharp / 3)
    table = random.normal(0, 1, (memory, V)) * scale[:, None]
    return lambda ids: table[np.asarray(ids) % memory]


def log_softmax(x: Any) -> Any:
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def cut(logprobs: Any, top_p: float = 1.0, top_k: int = 0, min_p: float = 0.0) -> Any:
    """Return renormalized log-probabilities after truncation, as engines compute them."""
    out = logprobs.copy()
    for i, row in enumerate(out):
        order = np.argsort(-row, kind="stable")
        p = np.exp(row[order])
        keep = (np.cumsum(p) - p < top_p) & (np.arange(V) < (top_k or V)) & (p >= min_p * p[0])
        row[order[~keep]] = -np.inf
        out[i] = log_softmax(row)
    return out


def run_of(logits: Any, rows: int = 12, noise: float = 0.0, temperature: float = 1.0, bfloat16: bool = False, seed: int = 5, **how: Any) -> list[Group]:
    """Return rows that an engine sampled from noisy logits, with the log-probabilities that it
    reported after truncation."""
    random, groups = np.random.default_rng(seed), []
    table = logits(np.arange(24))
    whole = cut(log_softmax(table / temperature), **how)
    for g in range(rows):
        ids, recorded = [int(random.integers(V))], [0.0]
        for _ in range(T - 1):
            said = whole[ids[-1] % 24]
            if noise:
                said = cut(log_softmax((table[ids[-1] % 24] + random.normal(0, noise, V))[None] / temperature), **how)[0]
            ids.append(int(random.choice(V, p=np.exp(said) / np.exp(said).sum())))
            recorded.append(said[ids[-1]])
        values = np.array(recorded, np.float32)
        if bfloat16:
            values = ((values.view(np.uint32) + 0x8000) & 0xFFFF0000).view(np.float32)
        mask = (np.arange(T) >= 10).astype(np.int8)
        row = {"sample_key": f"{g}", "segment_index": 0, "input_ids": np.array(ids, np.int32), "loss_mask": mask, "logprobs": values * mask, "reward": None}
        groups.append(Group(run="r", id=str(g), size=1, rows=[row]))
    return groups


CUTS = [*({"top_p": p} for p in (0.9, 0.95, 0.96, 0.97, 0.98, 0.99, 0.995, 0.999)), {"top_k": 5}, {"top_k": 40}, {"top_k": 100}, {"min_p": 0.02}, {"min_p": 0.1}]


@pytest.mark.parametrize("sharp", [1.5, 4.0])
@pytest.mark.parametrize("how", CUTS, ids=str)
def test_a_cut_is_no_ok_and_is_named(how: dict[str, Any], sharp: float) -> None:
    logits = model(sharp)
    run = run_of(logits, **how)
    report = check(logits, run, tolerance=0.05)
    bias = abs(report.total.bias)
    assert report.total.bias < 0 and report.total.max < 1e-5 or bias > 1e-4 or report.ok
    if bias > 1.1e-4:
        assert not report.ok and report.cause == "truncation", report
        (name, value), = how.items()
        assert f"{name} " in report.message and "the recorded values are renormalized" in report.message
        if name == "top_p":
            assert f"top_p {value:g} " in report.message, report.message
    values = check(lambda ids: np.concatenate(([0], log_softmax(logits(ids))[np.arange(len(ids) - 1), np.asarray(ids)[1:]])), run)
    assert values.ok == report.ok
    if not values.ok:
        assert values.cause == "unknown" and ("renormalized the recorded values after top_p, top_k or min_p" in values.message or bias > 0.2)


@pytest.mark.parametrize("noise", [0.005, 0.02])
@pytest.mark.parametrize("how", [{"top_p": p} for p in (0.9, 0.95, 0.96, 0.97, 0.98)], ids=str)
def test_a_cut_is_seen_through_the_noise_of_an_engine(how: dict[str, Any], noise: float) -> None:
    logits = model(1.5)
    report = check(logits, run_of(logits, noise=noise, bfloat16=True, **how))
    assert not report.ok and report.cause == "truncation" and "top_p" in report.message, report


def test_settings_that_the_row_has_are_tried() -> None:
    logits = model(1.5)
    run = run_of(logits, top_p=0.9735)
    for group in run:
        group.rows[0]["top_p"] = 0.9735
    assert "top_p 0.9735 " in check(logits, run).message


def test_noise_is_no_cut() -> None:
    """Each of 30 honest runs with several kinds of noise is ok."""
    wrong = []
    for seed in range(6):
        logits = model(1.5 + seed % 4)
        for noise, bfloat16 in ((0.0, False), (0.0, True), (0.005, True), (0.02, False), (0.04, True)):
            report = check(logits, run_of(logits, rows=2 + seed % 3 * 3, noise=noise, bfloat16=bfloat16, seed=seed))
            if not report.ok:
                wrong.append((seed, noise, bfloat16, str(report)))
    assert not wrong, wrong[0]


@pytest.mark.parametrize("temperature", [0.97, 1.03])
def test_a_temperature_near_one_is_no_cut(temperature: float) -> None:
    logits = model(1.5)
    assert check(logits, run_of(logits, temperature=temperature)).cause in ("none", "temperature")


def test_values_that_are_higher_on_every_token_are_no_cut() -> None:
    logits = model(1.5)
    run = run_of(logits)
    for group in run:
        group.rows[0]["logprobs"] = (group.rows[0]["logprobs"] - 0.01 * group.rows[0]["loss_mask"]).astype(np.float32)
    report = check(logits, run)
    assert not report.ok and report.cause != "truncation" and "one-sided" in report.tests
