"""Each trainer trains on the tokens, the log-probabilities and the rewards of the rows, by its own code."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import collates
import frameworks
import pytest

import rollout
from rollout import Dataset, Group

np, torch = frameworks.np, frameworks.torch
ADAPTERS = {"to_trl": rollout.to_trl, "to_verl": rollout.to_verl, "to_slime": rollout.to_slime, "to_tinker": rollout.to_tinker}


@pytest.fixture(scope="module")
def groups(collect: Callable[..., Path]) -> list[Group]:
    """Groups with forks, failed samples, cut rows and null rewards. The model gave the log-probabilities."""
    simulate = ("--input-ids", "--scripted", "5", "--drift", "0.7", "--wrong", "0.4", "--fault", "id-mismatch=0.1")
    run = collect("--samples", "4", "--reward", "number", "--max-row-tokens", "600", simulate=simulate, status=(0, 3, 4))
    made = collates.told(sorted(Dataset(run), key=lambda g: g.failed))  # the first groups have the most samples
    rows = made[0].rows
    made[0] = replace(made[0], rows=[{**r, "reward": None} if r["sample_index"] == rows[-1]["sample_index"] else r for r in rows])
    every = [row for group in made for row in group.rows]
    assert any(row["segment_index"] for row in every) and any(g.failed for g in made) and any(row["truncated"] for row in every)
    return made


@pytest.fixture(scope="module")
def scored(groups: list[Group]) -> list[Group]:
    """The groups without unscored samples."""
    return [replace(group, rows=[row for row in group.rows if row["reward"] is not None]) for group in groups]


def check(name: str, given: list[Group], want: list[Group]) -> None:
    """Raise unless the trainer gets, for each trained token of the rows in want, the log-probability of its model."""
    terms = list(collates.COLLATES[name](given))
    new, old = (torch.cat([part[i].double().flatten() for part in terms]) for i in (0, 1))
    recorded = np.concatenate([row["logprobs"][row["loss_mask"] == 1] for group in want for row in group.rows])
    assert (new - old).abs().max() < 1e-6, "a token has the log-probability of another token"
    assert len(old) == len(recorded) and np.array_equal(np.sort(old.numpy()), np.sort(recorded.astype(np.float64)))


@pytest.mark.parametrize("name", collates.COLLATES)
def test_every_trained_token_has_its_own_logprob(scored: list[Group], name: str) -> None:
    check(name, scored, scored)


@pytest.mark.parametrize("column", ["loss_mask", "logprobs", "input_ids"])
@pytest.mark.parametrize("name", collates.COLLATES)
def test_an_off_by_one_is_found(scored: list[Group], name: str, column: str) -> None:
    """As if the adapter had cut a column one token too early."""
    off = [replace(group, rows=[{**row, column: np.roll(row[column], 1)} for row in group.rows]) for group in scored]
    with pytest.raises(AssertionError):
        check(name, off, scored)


@pytest.mark.parametrize("name", ["verl", "skyrl", "slime"])
def test_a_prompt_that_is_too_long_is_found(scored: list[Group], name: str) -> None:
    off = [replace(group, rows=[{**row, "prompt_length": row["prompt_length"] + 1} for row in group.rows]) for group in scored]
    with pytest.raises((AssertionError, RuntimeError)):
        check(name, off, scored)


@pytest.mark.parametrize("name", collates.COLLATES)
def test_a_row_without_a_prompt(scored: list[Group], name: str) -> None:
    """No trainer trains on the first token of a row, for which a model has no log-probability."""
    bare = {scored[0].rows[0]["sample_key"]}

    def row_of(row: dict[str, Any]) -> dict[str, Any]:
        first = np.arange(len(row["input_ids"])) == 0
        own = {"prompt_length": 0, "loss_mask": row["loss_mask"] | first.astype(np.int8), "logprobs": np.where(first, np.float32(-0.1), row["logprobs"])}
        return {**row, **own} if row["sample_key"] in bare else row

    given = [replace(group, rows=[row_of(row) for row in group.rows]) for group in scored]
    if name in ("verl", "slime"):
        with pytest.raises(ValueError, match=f"sample {bare.pop()} has a row without a prompt, and this trainer needs one"):
            check(name, given, given)
    elif name in ("skyrl", "areal", "prime_rl"):
        check(name, given, [replace(group, rows=[row for row in group.rows if row["sample_key"] not in bare]) for group in scored])
    else:
        check(name, given, scored)


def slime_rewards(rewards: list[float]) -> Any:
    """slime/ray/rollout.py:612, for one group."""
    values = torch.tensor(rewards)
    return (values - values.mean()) / (values.std() + 1e-6)


def test_slime_gets_advantages_and_counts_a_sample_once(scored: list[Group]) -> None:
    made = rollout.to_slime(scored)
    rows = [row for group in scored for row in group.rows]
    assert [s["index"] for s in made] == list(range(len(rows)))
    assert len({s["rollout_id"] for s in made}) == len({row["sample_key"] for row in rows}) < len(rows)
    for number, group in enumerate(scored):
        of = [s for s in made if s["group_index"] == number]
        rewards = {row["sample_index"]: row["reward"] for row in group.rows}
        want = dict(zip(rewards, slime_rewards(list(rewards.values())).tolist())) if len(rewards) > 1 else dict.fromkeys(rewards, 0.0)
        for sample, row in zip(of, group.rows, strict=True):
            assert sample["reward"] == pytest.approx(want[row["sample_index"]], abs=1e-5)
            named = {"raw_reward": row["reward"], "sample_key": row["sample_key"], "group_id": group.id, "segment_index": row["segment_index"]}
            assert sample["metadata"] == named and sample["status"] == ("truncated" if row["truncated"] else "completed")
            assert sample["rollout_id"] == next(s["rollout_id"] for s, r in zip(of, group.rows) if r["sample_key"] == row["sample_key"])
    old = frameworks.aged(scored[0], 3, 4)
    assert {tuple(s["weight_versions"]) for s in rollout.to_slime([old])} == {("3", "4")}
    assert {tuple(s["weight_versions"]) for s in rollout.to_slime([frameworks.aged(old, 3)])} == {("3",)}
    assert {tuple(s["weight_versions"]) for s in made} == {()}


def test_slime_reads_the_file(scored: list[Group], tmp_path: Path) -> None:
    torch.save({"samples": rollout.to_slime(scored)}, tmp_path / "0.pt")
    assert torch.load(tmp_path / "0.pt")["samples"] == rollout.to_slime(scored)


def test_a_datum_is_that_of_tinkers_cookbook(scored: list[Group]) -> None:
    with collates.tinker() as cookbook:
        made = iter(rollout.to_tinker(scored))
        import tinker

        for group in scored:
            rewards = {row["sample_index"]: row["reward"] for row in group.rows}
            center = cookbook.compute_advantages([SimpleNamespace(get_total_rewards=lambda r=rewards: list(r.values()))])[0]
            advantage = dict(zip(rewards, center.tolist()))
            for row in group.rows:
                (want,) = cookbook.trajectory_to_data(trajectory(tinker, row), advantage[row["sample_index"]], False)
                got = next(made)
                assert got.model_input.to_ints() == want.model_input.to_ints()
                for name, value in got.loss_fn_inputs.items():
                    other = want.loss_fn_inputs[name]
                    assert value.dtype == other.dtype and torch.allclose(value.to_torch(), other.to_torch(), atol=1e-7), name
                assert set(want.loss_fn_inputs) - set(got.loss_fn_inputs) == {"mask"}  # the cookbook removes it before sending (rl/train.py:274)
        assert next(made, None) is None


def trajectory(tinker: Any, row: dict[str, Any]) -> Any:
    """Return a row as a trajectory of the cookbook: an action is a run of its mask."""
    ids, edges = row["input_ids"].tolist(), [0, *(np.flatnonzero(np.diff(row["loss_mask"])) + 1), len(row["input_ids"])]
    steps = []
    for a, b in zip(edges, edges[1:]):
        if row["loss_mask"][a]:
            action = SimpleNamespace(tokens=ids[a:b], logprobs=row["logprobs"][a:b].tolist(), sequence_id=None)
            steps.append(SimpleNamespace(ob=tinker.ModelInput.from_ints(ids[:a]), ac=action, metrics={}))
    return SimpleNamespace(transitions=steps)


@contextmanager
def installed(name: str) -> Iterator[Callable[..., Any]]:
    """Yield the function with what it imports of its trainer. The versions of all rows are known."""
    modules = {
        "verl__utils__tensordict_utils": SimpleNamespace(list_of_dict_to_tensordict=list),
        "trl__experimental__async_grpo__async_rollout_worker": SimpleNamespace(RolloutSample=SimpleNamespace),
    }
    with frameworks.modules(**modules), collates.tinker() if name == "to_tinker" else nullcontext():
        yield partial(ADAPTERS[name], versions=lambda row: (0, 0)) if name in ("to_trl", "to_verl") else ADAPTERS[name]


@pytest.mark.parametrize("name", ADAPTERS)
def test_an_unscored_sample_is_refused_or_dropped(groups: list[Group], scored: list[Group], name: str) -> None:
    with installed(name) as made:
        with pytest.raises(ValueError, match="has no reward: pass null_reward='drop' to drop such samples, or score the run again"):
            made(groups)
        dropped, want = made(groups, null_reward="drop"), made(scored)
        assert str(dropped) == str(want)


@pytest.mark.parametrize("name", ADAPTERS)
def test_what_is_no_group_is_refused(scored: list[Group], name: str) -> None:
    short = replace(scored[0], rows=[{k: v for k, v in row.items() if k != "logprobs"} for row in scored[0].rows])
    bare = replace(scored[0], rows=[{**row, "loss_mask": np.zeros_like(row["loss_mask"])} for row in scored[0].rows])
    with installed(name) as made:
        for given, options, error, says in (
            (scored, {"null_reward": "nan"}, ValueError, "null_reward='nan': must be one of error, drop"),
            ([scored[0].rows], {}, TypeError, "groups=.*: must be a list of groups, such as a Dataset"),
            (5, {}, TypeError, "groups=5: must be a list of groups, such as a Dataset"),
            ([short], {}, ValueError, "its rows have no column logprobs, and the trainer needs it: add it to columns="),
        ):
            with pytest.raises(error, match=says):
                made(given, **options)
        assert str(made([bare])) in ("[]", "{'keys': [], 'fields': None, 'tags': []}")  # nothing to train on


@pytest.mark.parametrize("name", ADAPTERS)
def test_odd_rows_are_refused_or_handled(scored: list[Group], name: str) -> None:
    def having(**columns: Any) -> Group:
        return replace(scored[0], rows=[{**row, **columns} for row in scored[0].rows])

    alone = replace(scored[0], rows=[row for row in scored[0].rows if row["sample_index"] == scored[0].rows[0]["sample_index"]])
    bare = having(prompt_length=0)  # its first token is sampled
    with installed(name) as made:
        for reward, says in ((np.nan, "has no reward"), (np.inf, "reward inf: must be finite")):
            with pytest.raises(ValueError, match=says):
                made([having(reward=reward)])
        assert not of_rows(made([having(reward=np.nan)], null_reward="drop"))
        assert not of_rows(made([replace(scored[0], rows=[])])) and not of_rows(made([]))
        assert len(of_rows(made([alone]))) == len(alone.rows)
        if name in ("to_verl", "to_slime"):
            with pytest.raises(ValueError, match="has a row without a prompt, and this trainer needs one: pass the groups without this sample"):
                made([bare])
        else:
            assert len(of_rows(made([bare]))) == len(bare.rows)
        if name == "to_slime":
            with pytest.raises(ValueError, match="have no column policy_version_min, and the trainer needs it: add it to columns="):
                made([replace(scored[0], rows=[{k: v for k, v in row.items() if k != "policy_version_min"} for row in scored[0].rows])])


def of_rows(made: Any) -> list[Any]:
    """Return what an adapter made of each row."""
    return made["keys"] if isinstance(made, dict) else made


def test_only_the_first_token_is_trained(scored: list[Group]) -> None:
    mask = np.arange(len(scored[0].rows[0]["loss_mask"])) == 0
    row = {**scored[0].rows[0], "loss_mask": mask.astype(np.int8)}
    with installed("to_tinker") as made:
        assert made([replace(scored[0], rows=[row])]) == []


@pytest.mark.parametrize("name", ["to_trl", "to_verl"])
def test_bounds_that_are_none_are_refused(scored: list[Group], name: str) -> None:
    with installed(name):
        for found in (None, 5, (1, None), (2, 1), (1, 2, 3), (0.5, 1)):
            with pytest.raises(ValueError, match="versions: returned .* for a row of sample .*: must be the oldest and the newest version"):
                ADAPTERS[name](scored, versions=lambda row, found=found: found)


@pytest.mark.parametrize("name", ["to_trl", "to_verl"])
def test_an_unknown_version_is_refused(scored: list[Group], name: str) -> None:
    with installed(name):
        with pytest.raises(ValueError, match="has no policy version, and this trainer needs one: collect with --policy-version, or pass versions="):
            ADAPTERS[name](scored)
        with pytest.raises(TypeError, match="versions=5: must be a function"):
            ADAPTERS[name](scored, versions=5)
        ADAPTERS[name]([frameworks.aged(group, 3) for group in scored])


def test_verl_needs_one_uid_for_each_group(scored: list[Group]) -> None:
    with installed("to_verl") as made:
        assert {key.split("_")[0] for key in made(scored[:2], uids=["a", "b"])["keys"]} == {"a", "b"}
        with pytest.raises(ValueError, match="uids: 1 texts for 5 groups: want one for each group"):
            made(scored, uids=["x"])
        with pytest.raises(TypeError, match="uids='x': must be a list of strings"):
            made(scored, uids="x")
        with pytest.raises(ValueError, match="is the uid of several groups, and verl would take them for one: pass uids="):
            made([*scored, scored[0]])  # as with two runs of the same tasks


def test_unscored_samples_have_no_advantage_in_trl(groups: list[Group]) -> None:
    with installed("to_trl") as to_trl:
        made = to_trl(groups[:1], null_reward="zero")
    of = {row["sample_index"]: sample for sample, row in zip(made, groups[0].rows, strict=True)}
    unscored = {row["sample_index"] for row in groups[0].rows if row["reward"] is None}
    assert unscored and {of[i].advantage for i in unscored} == {0.0} and all(np.isnan(of[i].metrics["reward"]) for i in unscored)


def test_the_blocks_are_short() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", collates.PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 6 and all(len([line for line in block.splitlines() if line]) <= 15 for block in blocks)
