"""rollout.check accepts what a model sampled, and names planted causes or returns unknown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rollout import Group, check

torch = pytest.importorskip("torch")

V = 50
T = 120


class Model:
    """Logits from the last token and a decaying memory of the tokens before."""

    def __init__(self, seed: int, noise: float = 0.0, sharp: float = 2.0):
        random = np.random.default_rng(seed)
        self.last, self.memory = random.normal(0, sharp, (V, V)), random.normal(0, 1.0, (V, V))
        if noise:
            other = np.random.default_rng(seed + 1)
            self.last = self.last + other.normal(0, noise, (V, V))

    def logits(self, ids: Any) -> Any:
        out, state = np.zeros((len(ids), V)), np.zeros(V)
        for i, token in enumerate(ids):
            state = 0.5 * state + self.memory[token]
            out[i] = self.last[token] + state
        return out

    def logprobs(self, ids: Any, temperature: float = 1.0) -> Any:
        x = self.logits(ids)[:-1] / temperature
        x -= x.max(1, keepdims=True)
        return np.concatenate(([0], (x - np.log(np.exp(x).sum(1, keepdims=True)))[np.arange(len(ids) - 1), ids[1:]]))

    def sample(self, random: Any, n: int, temperature: float = 1.0) -> Any:
        ids, state = [int(random.integers(V))], np.zeros(V)
        for _ in range(n - 1):
            state = 0.5 * state + self.memory[ids[-1]]
            x = (self.last[ids[-1]] + state) / temperature
            p = np.exp(x - x.max())
            ids.append(int(random.choice(V, p=p / p.sum())))
        return np.array(ids, np.int32)


def run_of(
    model: Model, n: int = 30, temperature: float = 1.0, versions: list[Model] | None = None, recorded: float | None = None
) -> list[Group]:
    """Return groups of rows prompt, assistant, tool, assistant, sampled at a temperature, with
    versions by one model after the other."""
    random, groups = np.random.default_rng(5), []
    for g in range(n // 2):
        rows = []
        for s in range(2):
            version = (g * len(versions)) // (n // 2) if versions else 7
            by = versions[version] if versions else model
            ids = by.sample(random, T, temperature)
            mask = np.zeros(T, np.int8)
            mask[20:60] = mask[80:] = 1
            rows.append({
                "sample_key": f"{g}.{s}", "segment_index": 0, "input_ids": ids, "loss_mask": mask, "reward": None,
                "logprobs": np.where(mask, by.logprobs(ids, temperature), 0).astype(np.float32),
                "versions": np.where(mask, version, -1).astype(np.int32) if versions else None, "temperature": recorded,
                "turn_offsets": np.array([0, 20, 60, 80, T], np.int32), "turn_roles": np.array([0, 1, 2, 1], np.int8),
            })  # fmt: skip
        groups.append(Group(run="r", id=str(g), size=2, rows=rows))
    return groups


MODEL = Model(1)
RUN = run_of(MODEL)


def with_temperature(ids: Any, temperature: float = 1.0) -> Any:
    return MODEL.logprobs(ids.numpy(), temperature)


FORMS: dict[str, Callable[[Any], Any]] = {
    "values": lambda ids: MODEL.logprobs(ids.numpy()),
    "tensors": lambda ids: torch.from_numpy(MODEL.logprobs(ids.numpy())).bfloat16().float(),
    "logits": lambda ids: torch.from_numpy(MODEL.logits(ids.numpy())),
    "numpy logits": lambda ids: MODEL.logits(ids.numpy()),
    "temperature": with_temperature,
}


@pytest.mark.parametrize("form", FORMS)
def test_what_was_sampled_passes(form: str) -> None:
    report = check(FORMS[form], RUN)
    assert report.ok and report.cause == "none" and report.rows == 30 and report.total.tokens == 30 * 80
    assert report.total.mean < 1e-6 or form == "tensors"
    assert [line.name for line in report.by_span] == ["0", "1"]
    assert [(line.name, line.tokens) for line in report.by_position] == [("0-63", 30 * 40), ("64-127", 30 * 40)]
    assert [line.name for line in report.by_role] == ["assistant"]
    assert [line.name for line in report.by_version] == ["unknown"]
    assert {role: n for role, (n, _) in report.context.items()} == {"prompt": 30 * 19, "tool": 30 * 20}


@pytest.mark.parametrize("form", ["logits", "numpy logits"])
def test_logits_are_taken_some_at_a_time(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollout.train._measure._MOST_LOGITS", 7 * V)
    assert check(FORMS[form], RUN, tolerance=1e-6).ok
    assert check(shifted(1, True), RUN).cause == "shift"


def test_the_first_token_is_not_looked_at() -> None:
    """A row without its prompt begins with a sampled token."""
    run = run_of(MODEL, n=4)
    for group in run:
        for row in group.rows:
            row["loss_mask"] = np.ones(T, np.int8)
            row["logprobs"] = MODEL.logprobs(row["input_ids"]) - 9 * (np.arange(T) == 0)
    report = check(FORMS["logits"], run)
    assert report.ok and report.total.tokens == 4 * (T - 1) and report.total.max < 1e-6


def shifted(by: int, logits: bool) -> Callable[[Any], Any]:
    whole = MODEL.logits if logits else MODEL.logprobs
    return lambda ids: np.roll(whole(ids.numpy()), by, 0)


@pytest.mark.parametrize("by", [-1, 1])
@pytest.mark.parametrize("logits", [True, False])
def test_shift_is_named(by: int, logits: bool) -> None:
    report = check(shifted(by, logits), RUN)
    assert (report.ok, report.cause) == (False, "shift")
    place = {(-1, False): "at i are the log-probability of token i + 1", (1, False): "at i are the log-probability of token i - 1"}
    place |= {(-1, True): "the model's predictions after token i + 1", (1, True): "the model's predictions after token i - 1"}
    assert place[by, logits] in report.message


@pytest.mark.parametrize("form", ["temperature", "logits"])
@pytest.mark.parametrize("temperature", [0.7, 1.15])
def test_temperature_is_named(form: str, temperature: float) -> None:
    report = check(FORMS[form], run_of(MODEL, temperature=temperature))
    assert (report.ok, report.cause) == (False, "temperature") and f"the values agree at {temperature:.3g}" in report.message
    report = check(FORMS[form], run_of(MODEL, temperature=temperature, recorded=temperature))
    assert report.cause == "temperature" and "at the recorded temperature of each row" in report.message


def test_temperature_that_cannot_be_tried_is_unknown() -> None:
    report = check(FORMS["values"], run_of(MODEL, temperature=0.9))
    assert (report.ok, report.cause) == (False, "unknown")
    assert "other weights or another temperature; to distinguish them, add a temperature parameter" in report.message


@pytest.mark.parametrize("form", ["temperature", "logits"])
def test_other_weights_are_named(form: str) -> None:
    report = check(FORMS[form], run_of(Model(1, noise=0.4)))
    assert (report.ok, report.cause) == (False, "weights") and "no temperature explains it" in report.message


def test_weights_of_other_versions_are_named() -> None:
    run = run_of(MODEL, versions=[Model(1, noise=0.5), Model(1, noise=0.25), MODEL])
    for form in ("values", "logits"):
        report = check(FORMS[form], run)
        assert (report.ok, report.cause) == (False, "weights")
        assert report.message == "other weights: tokens from version 2 agree, but tokens from versions 0, 1 do not"
        assert [(line.name, line.off) for line in report.by_version] == [("0", True), ("1", True), ("2", False)]


def test_a_few_tokens_of_other_weights_are_not_lost_in_the_mean() -> None:
    run = run_of(MODEL, n=100, versions=[Model(1, noise=0.5)] + [MODEL] * 24)
    report = check(FORMS["logits"], run, tolerance=0.1)
    assert report.total.mean < 0.1 and not report.ok and "version 0 do not" in report.message


def test_another_tokenizer_is_named() -> None:
    other = np.random.default_rng(3).permutation(V)
    for function in (lambda ids: MODEL.logprobs(other[ids.numpy()]), lambda ids: MODEL.logits(other[ids.numpy()])[:, other]):
        report = check(function, RUN)
        assert (report.ok, report.cause) == (False, "tokenizer") and "below a uniform guess among 50 ids" in report.message


def test_ids_outside_the_vocabulary_are_another_tokenizer() -> None:
    small = torch.nn.Embedding(40, V)
    for function, more in (
        (lambda ids: small(ids), {}),
        (lambda ids: MODEL.logits(ids.numpy())[:, :40], {}),
        (FORMS["values"], {"vocabulary": 40}),
    ):
        report = check(function, RUN, **more)
        assert (report.ok, report.cause, report.rows) == (False, "tokenizer", 30) and "another tokenizer: " in report.message
        assert str(report)


def test_a_model_in_training_mode_is_named() -> None:
    random = np.random.default_rng(2)
    report = check(lambda ids: MODEL.logprobs(ids.numpy()) + random.normal(0, 0.3, len(ids)), RUN)
    assert (report.ok, report.cause) == (False, "random") and "training mode" in report.message


def test_an_untrained_model_is_named() -> None:
    report = check(lambda ids: np.random.default_rng(0).normal(0, 0.05, (len(ids), V)), RUN)
    assert (report.ok, report.cause) == (False, "weights") and "untrained model" in report.message


@pytest.mark.parametrize(
    "name, function",
    [
        ("noise", lambda ids, temperature=1.0: with_temperature(ids, temperature) + np.random.default_rng(0).normal(0, 0.5, len(ids))),
        ("scaled", lambda ids, temperature=1.0: 1.3 * with_temperature(ids, temperature)),
        ("constant", lambda ids, temperature=1.0: np.full(len(ids), -1.0)),
        ("shifted and warm", lambda ids: np.roll(with_temperature(ids, 1.5), 1)),
        ("another model", lambda ids, temperature=1.0: Model(9).logprobs(ids.numpy(), temperature)),
    ],
)
def test_what_nothing_singles_out_is_unknown(name: str, function: Callable[[Any], Any]) -> None:
    report = check(function, RUN)
    assert not report.ok and report.cause in ({"unknown", "tokenizer"} if name == "another model" else {"unknown"})


def short(model: Model, n: int, length: int, temperature: float = 1.0) -> list[Group]:
    """Return groups of one row of the given length, in which all tokens except the first one or
    two are sampled."""
    random, groups = np.random.default_rng(length), []
    for g in range(n):
        ids = model.sample(random, length, temperature)
        mask = (np.arange(length) > (length > 3)).astype(np.int8)
        logprobs = np.where(mask, model.logprobs(ids, temperature), 0).astype(np.float32)
        row = {"sample_key": str(g), "segment_index": 0, "input_ids": ids, "loss_mask": mask, "logprobs": logprobs}
        groups.append(Group("r", str(g), 1, [row]))
    return groups


@pytest.mark.parametrize("length", [2, 3, 6, 10, 11, T])
def test_probabilities_are_refused_whatever_the_length_of_the_rows(length: int) -> None:
    run = short(MODEL, 30, length)
    with pytest.raises(ValueError, match="is not a log-probability: is it a loss or a probability?"):
        check(lambda ids: np.exp(MODEL.logprobs(ids.numpy())), run)
    with pytest.raises(ValueError, match="is not a log-probability: is it a loss or a probability?"):
        check(lambda ids: -MODEL.logprobs(ids.numpy()), run)
    for softmax in (lambda ids: torch.from_numpy(MODEL.logits(ids.numpy())).softmax(-1).half(), lambda ids: np.full((len(ids), V), 1 / V)):
        with pytest.raises(ValueError, match="sum to 1, like probabilities: return logits or log-probabilities"):
            check(softmax, run)
    assert check(FORMS["values"], run).ok


def test_log_probabilities_that_are_above_zero_by_rounding_are_none_the_less() -> None:
    run = short(MODEL, 30, 4)
    for group in run:
        group.rows[0]["logprobs"] = np.zeros(4, np.float32)

    def rounded(ids: Any) -> Any:
        return np.where(np.random.default_rng(int(ids.sum())).random(len(ids)) < 0.5, 0.125, -0.125)

    assert check(rounded, run, tolerance=0.2).ok


FAULTS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "shift": (shifted(1, True), "shift"),
    "shift of values": (shifted(-1, False), "shift"),
    "temperature": (lambda ids: 0.7 * MODEL.logits(ids.numpy()), "temperature"),
    "temperature of values": (lambda ids: MODEL.logprobs(ids.numpy(), 0.7), "unknown"),
    "weights": (lambda ids: Model(1, noise=0.4).logits(ids.numpy()), "weights"),
    "tokenizer": (lambda ids: MODEL.logits(ids.numpy())[:, np.random.default_rng(3).permutation(V)], "tokenizer"),
    "untrained": (lambda ids: np.random.default_rng(0).normal(0, 0.05, (len(ids), V)), "weights"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_few_tokens_name_no_wrong_cause(fault: str) -> None:
    function, cause = FAULTS[fault]
    for length in (2, 3, 6, 10):
        for n in (1, 2, 3, 30):
            report = check(function, short(MODEL, n, length))
            few = report.total.tokens < 20
            assert report.cause in ({"unknown", "none"} if few else {cause, "unknown"}), (length, n, report.message)
            if few:
                assert ("prove little" if report.ok else "too few to find a cause") in report.message


def test_one_row_is_fitted_and_tried_alike() -> None:
    report = check(FAULTS["temperature"][0], short(MODEL, 1, T))
    assert report.cause == "temperature" and "not fitted" not in report.message


def test_a_model_in_training_mode_is_named_by_short_rows() -> None:
    for seed in range(20):
        random = np.random.default_rng(seed)
        report = check(lambda ids: MODEL.logprobs(ids.numpy()) + random.normal(0, 0.3, len(ids)), short(MODEL, 200, 2), rows=200)
        assert report.cause == "random", report.message


def test_the_report_is_a_table() -> None:
    report = check(FORMS["logits"], run_of(Model(1, noise=0.4)), rows=10)
    text = str(report)
    lines = text.splitlines()
    assert lines[0].startswith("NOT ok: other weights") and lines[1].split() == ["tokens", "mean", "|Δ|", "p99", "max", "mean", "Δ"]
    assert lines[2].split()[:2] == ["all", "800"] and "span" in lines and "position" in lines
    assert any(line.startswith("tried         shift -1: ") for line in lines)
    assert report.rows == 10


def test_what_the_function_does_wrong_is_said() -> None:
    with pytest.raises(ValueError, match=r"returned shape \(119,\) for 120 ids: want \(120,\), or logits \(120, V\); put a 0 before the first"):
        check(lambda ids: MODEL.logprobs(ids.numpy())[1:], RUN)
    with pytest.raises(ValueError, match="NaN at token 1 of sample"):
        check(lambda ids: np.full(len(ids), np.nan), RUN)
    with pytest.raises(TypeError, match="logprob_fn='run1' is not a function: pass the function first, then the run"):
        check("run1", FORMS["values"])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="must be the folder of a run"):
        check(FORMS["values"], [RUN])
    short = [Group("r", "g", 1, [{name: value for name, value in RUN[0].rows[0].items() if name != "logprobs"}])]
    with pytest.raises(ValueError, match="group g has no column logprobs"):
        check(FORMS["values"], short)
    with pytest.raises(ValueError, match="no row has a sampled token"):
        check(FORMS["values"], [])

    def broken(ids: Any) -> Any:
        raise IndexError("mine")

    with pytest.raises(IndexError, match="mine"):
        check(broken, RUN)
