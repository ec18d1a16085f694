"""verl's own replay buffers and advantages accept the groups of a collector from the
TransferQueue."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import frameworks
import pytest
from rollout import Dataset, Group, StateError
from rollout.verl import Feeder

np, torch = frameworks.np, frameworks.torch
FIELDS = ["prompts", "responses", "input_ids", "position_ids", "response_mask", "loss_mask", "rollout_log_probs", "rm_scores", "uid", "num_turns", "session_id"]


@pytest.fixture(scope="module")
def groups(collect: Callable[..., Path]) -> list[Group]:
    return frameworks.groups_of(collect)


@pytest.fixture(scope="module")
def whole(groups: list[Group]) -> list[Group]:
    """Return the groups without failed samples."""
    return [group for group in groups if not group.failed]


@pytest.fixture(scope="module")
def installed() -> Iterator[frameworks.Verl | None]:
    """If verl is installed, its queue for all tests: it takes half a minute to start."""
    found = frameworks.Verl() if frameworks.INSTALLED else None
    if found:
        found.tq.init()
    yield found
    if found:
        found.tq.close()


@pytest.fixture
def verl(installed: frameworks.Verl | None) -> Iterator[frameworks.Verl]:
    found = installed or frameworks.Verl()
    with frameworks.modules(**found.modules):
        yield found
        if installed and (keys := list(found.tq.kv_list("train").get("train", {}))):
            found.tq.kv_clear(keys=keys, partition_id="train")


class Trainer:
    """What PPOTrainer does with its agent loop manager and its replay buffer (trainer_base.py)."""

    def __init__(self, verl: frameworks.Verl, given: list[Group] | Any, kind: str = "ReplayBufferAsync", threshold: int | None = 4, **options: Any) -> None:
        self.verl, self.step, self.asked = verl, 1, 0
        self.collector = frameworks.Finished(given, end=False) if isinstance(given, list) else given
        self.feeder = Feeder(**given) if isinstance(given, dict) else Feeder(self.collector)
        self.buffer = getattr(verl.buffers, kind)(
            trainer_mode="async", trainer_config={}, max_off_policy_threshold=threshold, max_off_policy_strategy="drop",
            sampler_kwargs={}, poll_interval=0.02, refill_fn=self.submit, **options,
        )  # fmt: skip

    def submit(self, prompts: int) -> None:
        """Like _submit_batch_to_rollout: prompts of the trainer's own dataset, identified by
        their uid."""
        uids = [str(uuid.uuid4()) for _ in range(prompts)]
        self.asked += prompts
        tags = [{"is_prompt": True, "status": "pending", "global_steps": self.step} for _ in uids]
        self.verl.tq.kv_batch_put(keys=uids, partition_id="train", tags=tags)
        self.feeder.generate_sequences(self.batch(uids))

    def batch(self, uids: list[str]) -> Any:
        if not frameworks.INSTALLED:
            return {"uid": uids, "global_steps": self.step}
        import verl.utils.tensordict_utils as tu

        made = tu.get_tensordict({"uid": np.array(uids, dtype=object)})
        tu.assign_non_tensor_data(made, "global_steps", self.step)
        return made

    def sample(self, size: int) -> tuple[list[str], list[dict[str, Any]], dict[str, Any]]:
        batch, metrics = self.buffer.sample(global_steps=self.step, partition_id="train", batch_size=size)
        return list(batch.keys), list(batch.tags), metrics


@pytest.fixture
def trainer(verl: frameworks.Verl) -> Iterator[Callable[..., Trainer]]:
    made: list[Trainer] = []

    def make(*args: Any, **options: Any) -> Trainer:
        made.append(Trainer(verl, *args, **options))
        return made[-1]

    yield make
    for each in made:
        each.feeder.close()
        assert not each.feeder._thread.is_alive()


def by_uid(keys: list[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for key in keys:
        found.setdefault(key.split("_")[0], []).append(key)
    return found


def test_rows_have_verls_keys_fields_and_tags(verl: frameworks.Verl, trainer: Callable[..., Trainer], whole: list[Group]) -> None:
    one = trainer(whole, threshold=None)
    one.submit(len(whole))
    keys, tags, _ = one.sample(len(whole))
    rows = [row for group in whole for row in group.rows]
    assert len(keys) == len(set(keys)) == len(rows) > len({row["sample_key"] for row in rows})
    stored = dict(zip(keys, zip(verl.fields(keys, FIELDS), tags)))
    for uid, of in by_uid(keys).items():
        (group,) = (g for g in whole if g.rows[0]["input_ids"].tolist() == stored[min(of)][0]["input_ids"].tolist())
        assert sorted(of) == sorted(f"{uid}_{row['sample_index']}_{row['segment_index']}" for row in group.rows)
        for row in group.rows:
            got, tag = stored[f"{uid}_{row['sample_index']}_{row['segment_index']}"]
            at, version = row["prompt_length"], row["policy_version_min"]
            mask = row["loss_mask"][at:]
            score = np.zeros(len(mask), dtype=np.float32)
            score[-1] = row["reward"]
            want = {
                "prompts": row["input_ids"][:at], "responses": row["input_ids"][at:], "input_ids": row["input_ids"], "position_ids": np.arange(len(row["input_ids"])),
                "response_mask": mask, "loss_mask": mask, "rollout_log_probs": row["logprobs"][at:], "rm_scores": score,
            }  # fmt: skip
            for name, values in want.items():
                np.testing.assert_array_equal(np.asarray(got[name]), values, err_msg=name)
                assert str(got[name].dtype) == ("torch.float32" if name in ("rollout_log_probs", "rm_scores") else "torch.int64")
            assert str(got["uid"]) == uid and int(got["session_id"]) == row["sample_index"]
            lengths = {"prompt_len": at, "response_len": len(mask), "seq_len": len(row["input_ids"])}
            assert tag.items() >= {"status": "success", **lengths, "min_global_steps": version, "max_global_steps": version, "global_steps": version + 1}.items()


def test_the_last_segment_of_a_sample_counts(verl: frameworks.Verl, trainer: Callable[..., Trainer], whole: list[Group]) -> None:
    """index is segment_index: verl takes one score per sample, and gives the advantage to all
    of its segments."""
    one = trainer(whole, threshold=None)
    one.submit(len(whole))
    keys, _, _ = one.sample(len(whole))
    got = verl.advantages(keys)
    forks = 0
    for of in by_uid(keys).values():
        scores = {key: float(row["rm_scores"].sum()) for key, row in zip(of, verl.fields(of, ["rm_scores"]))}
        samples = {key.split("_")[1]: score for key, score in scores.items()}
        values = np.array(list(samples.values()))
        for key in of:
            want = (samples[key.split("_")[1]] - values.mean()) / (values.std(ddof=1) + 1e-6)
            mask = np.asarray(verl.fields([key], ["response_mask"])[0]["response_mask"])
            np.testing.assert_allclose(got[key], want * mask, rtol=1e-4, atol=1e-5)
        forks += len(of) - len(samples)
    assert forks


def test_the_rows_of_a_subagent_have_the_advantage_of_their_sample(verl: frameworks.Verl, trainer: Callable[..., Trainer], delegated: list[Group]) -> None:
    given = [frameworks.aged(group, 0) for group in delegated]
    one = trainer(given, threshold=None)
    one.submit(len(given))
    keys, _, _ = one.sample(len(given))
    assert len(keys) == len(set(keys)) == sum(len(group.rows) for group in given)
    got, samples = verl.advantages(keys), {}
    for key in keys:
        uid, sample, _ = key.split("_")
        samples.setdefault((uid, sample), set()).add(float(got[key].sum() / np.count_nonzero(got[key]) if got[key].any() else 0))
    assert len(samples) == 12 < len(keys)
    for values in samples.values():
        assert max(values) - min(values) < 1e-5  # one advantage in all of the sample's conversations


def test_the_asynchronous_trainer_evicts_groups_with_failed_samples(trainer: Callable[..., Trainer], groups: list[Group], whole: list[Group]) -> None:
    """It requests another group in place of each."""
    one = trainer(groups, threshold=None)
    one.submit(len(whole))
    keys, _, metrics = one.sample(len(whole))
    assert len(keys) == sum(len(g.rows) for g in whole)
    assert metrics["training/rollout_failure/evicted_samples"] == one.asked - len(whole) > 0


def test_the_synchronous_trainer_takes_what_has_not_failed(trainer: Callable[..., Trainer], groups: list[Group]) -> None:
    one = trainer(groups, kind="ReplayBuffer", threshold=None)
    one.submit(len(groups))
    keys, _, metrics = one.sample(len(groups))
    assert len(keys) == sum(len(g.rows) for g in groups) and not metrics


def test_a_sample_without_a_reward_has_failed(verl: frameworks.Verl, trainer: Callable[..., Trainer], whole: list[Group]) -> None:
    """As when verl's own reward fails: no score is invented."""
    group = replace(whole[0], rows=[{**r, "reward": None if r["sample_index"] == 1 else r["reward"]} for r in whole[0].rows])
    none = replace(whole[1], rows=[{**r, "reward": None} for r in whole[1].rows])
    one = trainer([group, none], kind="ReplayBuffer", threshold=None)
    one.submit(2)
    keys, _, _ = one.sample(2)
    assert len(keys) == sum(r["sample_index"] != 1 for r in whole[0].rows) and not any(k.split("_")[1] == "1" for k in keys)


def test_an_empty_response_is_no_row(verl: frameworks.Verl, trainer: Callable[..., Trainer], whole: list[Group]) -> None:
    """No run has an empty response, because verify rejects it. A group with nothing else has
    failed."""

    def emptied(row: dict[str, Any]) -> dict[str, Any]:
        at = row["prompt_length"]
        return {**row, "input_ids": row["input_ids"][:at], "loss_mask": row["loss_mask"][:at], "logprobs": row["logprobs"][:at]}

    group = replace(whole[0], rows=[emptied(r) if r["sample_index"] == 1 else r for r in whole[0].rows])
    none = replace(whole[1], rows=[emptied(r) for r in whole[1].rows])
    one = trainer([none, group, whole[2]], threshold=None)
    one.submit(2)
    keys, _, metrics = one.sample(2)
    assert len(keys) == sum(r["sample_index"] != 1 for r in whole[0].rows) + len(whole[2].rows)
    assert metrics["training/rollout_failure/evicted_samples"] == 1


def test_what_a_filter_left_out_has_not_failed(verl: frameworks.Verl, trainer: Callable[..., Trainer], whole: list[Group]) -> None:
    group = replace(whole[0], rows=[r for r in whole[0].rows if r["sample_index"]], left_out=1)
    one = trainer([group], threshold=None)
    one.submit(1)
    keys, _, metrics = one.sample(1)
    assert len(keys) == len(group.rows) and not metrics


def test_stale_groups_are_dropped_by_the_trainer(verl: frameworks.Verl, trainer: Callable[..., Trainer], whole: list[Group]) -> None:
    """Step 10 trains with the weights of version 9: a distance of at most 4 allows versions 6
    to 9."""
    aged = [frameworks.aged(whole[i % len(whole)], version) for i, version in enumerate(range(10))]
    one = trainer(aged, threshold=4)
    one.step = 10
    one.submit(4)
    keys, tags, metrics = one.sample(4)
    assert sorted({tag["min_global_steps"] for tag in tags}) == [6, 7, 8, 9]
    assert metrics["training/off_policy/evicted_samples"] == 6 and one.asked == one.collector.given == 10


def test_unknown_versions_are_bounds(verl: frameworks.Verl, trainer: Callable[..., Trainer], whole: list[Group]) -> None:
    one = trainer([frameworks.aged(whole[0], None)], threshold=None)
    one.step = 5
    one.submit(1)
    _, tags, _ = one.sample(1)
    assert {(t["min_global_steps"], t["max_global_steps"]) for t in tags} == {(0, 4)}
    assert one.collector.versions == []  # verl does not report weight changes, so no version is claimed


def test_groups_come_when_they_are_asked_for(verl: frameworks.Verl, trainer: Callable[..., Trainer], whole: list[Group]) -> None:
    one = trainer(whole, threshold=None)
    seen: list[str] = []
    for step in range(1, len(whole) + 1):
        one.step = step
        one.submit(1)
        keys, _, _ = one.sample(1)
        seen += keys
        assert one.collector.given in (step, step + 1)  # one waits in hand
        verl.tq.kv_clear(keys=keys, partition_id="train")
    assert len(seen) == sum(len(g.rows) for g in whole)


def test_a_checkpoint_of_the_queue_holds_the_place(verl: frameworks.Verl, trainer: Callable[..., Trainer], whole: list[Group]) -> None:
    one = trainer(whole, threshold=None)
    one.submit(2)
    one.sample(2)
    one.feeder.close()
    place = verl.tq.kv_list("train")["train"]["rollout"]
    assert {k: place[k] for k in ("run_id", "seq", "groups")} == {"run_id": "r", "seq": 1, "groups": 2}
    two = trainer(whole, threshold=None)
    two.submit(1)
    keys, _, _ = two.sample(1)
    assert len(keys) == len(whole[2].rows) and two.collector.given in (3, 4)


def test_the_end_of_the_tasks_reaches_the_trainer(verl: frameworks.Verl, trainer: Callable[..., Trainer], whole: list[Group]) -> None:
    one = trainer(frameworks.Finished(whole[:1]), threshold=None)
    one.submit(2)
    with pytest.raises(RuntimeError, match="there are no more groups: the tasks ran out"):
        one.sample(2)  # it evicts the failed prompt, and requests another


def test_an_error_of_the_queue_reaches_the_trainer(trainer: Callable[..., Trainer], whole: list[Group]) -> None:
    odd = replace(whole[0], rows=[{**whole[0].rows[0], "logprobs": None}])
    one = trainer([odd, *whole], threshold=None)
    one.submit(2)
    with pytest.raises(RuntimeError, match="there are no more groups") as raised:
        one.sample(2)
    assert isinstance(raised.value.__cause__, TypeError)


def test_no_request_is_taken_after_the_end(trainer: Callable[..., Trainer], whole: list[Group]) -> None:
    begun, fresh = trainer(whole), trainer(whole)
    begun.submit(1)
    for one in (begun, fresh):
        one.feeder.close()
        with pytest.raises(RuntimeError, match="there are no more groups: the worker was closed"):
            one.submit(1)
    assert fresh.collector.given == 0, "a collector that nobody ends"


def test_a_close_while_the_collector_begins(verl: frameworks.Verl, whole: list[Group]) -> None:
    class Closing(frameworks.Finished):
        def load_state_dict(self, state: dict[str, Any]) -> None:
            super().load_state_dict(state)
            feeder.close()

    feeder = Feeder(collector := Closing(whole, end=False))
    feeder.begin({"groups": 0})
    assert collector.closed.is_set() and not feeder._thread.is_alive()


def test_validation_is_refused(whole: list[Group]) -> None:
    with frameworks.modules(**({} if frameworks.INSTALLED else {"transfer_queue": SimpleNamespace()})):
        with pytest.raises(NotImplementedError, match="test_freq=-1"):
            Feeder(frameworks.Finished([])).generate_sequences({"validate": True, "uid": [], "global_steps": 1})


def test_it_is_made_of_verls_configuration() -> None:
    custom = {"rollout": {"config": {"run": {"seed": 1}}, "tasks": "tasks.jsonl", "out": "run1", "max_ahead": 2}}
    plain = SimpleNamespace(create=lambda given: given, to_container=lambda given, resolve: given)
    with frameworks.modules(**({} if frameworks.INSTALLED else {"omegaconf": SimpleNamespace(OmegaConf=plain)})):
        if frameworks.INSTALLED:
            from omegaconf import OmegaConf

            custom = OmegaConf.create(custom)
        config = SimpleNamespace(actor_rollout_ref=SimpleNamespace(rollout=SimpleNamespace(custom=custom)))
        feeder = Feeder.create(config=config, llm_client=None, teacher_client=None, reward_loop_worker_handles=None)
    assert feeder._given == ({"run": {"seed": 1}}, "tasks.jsonl", {"out": "run1", "max_ahead": 2}) and type(feeder._given[0]) is dict


def test_a_finished_run_is_trained_once_and_goes_on(verl: frameworks.Verl, trainer: Callable[..., Trainer], collect: Callable[..., Path]) -> None:
    run = collect("--samples", "4", "--reward", "number", simulate=("--input-ids", "--scripted", "5", "--drift", "0.7"))
    want = [sorted(row["input_ids"].tolist() for row in group.rows) for group in Dataset(run)]

    def given(one: Trainer, n: int) -> list[Any]:
        one.submit(n)
        keys, _, _ = one.sample(n)
        got = dict(zip(keys, verl.fields(keys, ["input_ids"])))
        verl.tq.kv_clear(keys=keys, partition_id="train")
        return [sorted(np.asarray(got[key]["input_ids"]).tolist() for key in of) for of in by_uid(keys).values()]

    one = trainer({"config": run}, threshold=None)  # as with rollout.custom.rollout={config: run1}
    first = given(one, 2)
    one.feeder.close()
    two = trainer({"config": str(run)}, threshold=None)
    assert sorted(first + given(two, 3)) == sorted(want)
    with pytest.raises(RuntimeError, match="there are no more groups: all 5 groups of .* have been used"):
        given(two, 1)
    with pytest.raises(StateError, match="is not a position in a finished run"):
        Feeder(Dataset(run)).begin({"run_id": "r", "seq": 1, "groups": 2})


def sequences(verl: frameworks.Verl, trainer: Callable[..., Trainer], group: Group, **options: Any) -> dict[str, Any]:
    """Return, by sample, its share of the loss if each token has a loss of 1, by verl's own sum
    over sequences."""
    one = trainer({"config": frameworks.Finished([group], end=False), **options}, threshold=None)
    one.submit(1)
    keys, _, _ = one.sample(1)
    fields = verl.fields(keys, ["response_mask", *(["rollout_is_weights"] if options else [])])
    width = max(len(f["response_mask"]) for f in fields)
    pad = [torch.nn.functional.pad(torch.as_tensor(f["response_mask"]), (0, width - len(f["response_mask"]))) for f in fields]
    weight = [torch.as_tensor(f["rollout_is_weights"])[0].item() if options else 1.0 for f in fields]
    assert all(np.unique(np.asarray(f["rollout_is_weights"])).size == 1 and len(f["rollout_is_weights"]) == len(f["response_mask"]) for f in fields if options)
    mask, parts = torch.stack(pad), {}
    for sample in {key.split("_")[1] for key in keys}:
        losses = torch.stack([m * w * (key.split("_")[1] == sample) for m, w, key in zip(pad, weight, keys)]).float()
        # n * ppo_mini_batch_size, which ignores forks
        parts[sample] = frameworks.trainers.Verl().core.agg_loss(losses, mask, "seq-mean-token-mean", global_batch_size=len({k.split("_")[1] for k in keys})).item()
    return parts


@pytest.mark.skipif(frameworks.INSTALLED, reason="the sum is cut out of the wheel")
def test_a_forked_sample_weighs_as_its_twin(verl: frameworks.Verl, trainer: Callable[..., Trainer], whole: list[Group]) -> None:
    rows = [row for group in whole for row in group.rows]
    forked = [{**rows[i], "sample_index": 0, "segment_index": i} for i in range(5)]
    group = replace(whole[0], rows=[*forked, {**rows[5], "sample_index": 1, "segment_index": 0}])
    plain = sequences(verl, trainer, group)
    assert plain["0"] / (plain["0"] + plain["1"]) == pytest.approx(0.833, abs=1e-3)
    verl.tq.kv_clear(keys=list(verl.tq.kv_list("train")["train"]), partition_id="train")
    weighed = sequences(verl, trainer, group, weigh_samples=True)
    assert weighed == {"0": pytest.approx(0.5), "1": pytest.approx(0.5)}


def test_the_settings_are_those_of_collect(
    verl: frameworks.Verl, trainer: Callable[..., Trainer], simulator: Callable[..., tuple[str, Path]], tmp_path: Path
) -> None:
    url, _ = simulator("--input-ids", "--scripted", "1")
    tasks = [{"prompt": f"Add {n} and 2.", "answer": str(n + 2)} for n in range(5)]
    settings = {"tasks": tasks, "out": tmp_path / "run1", "server": url, "model": "sglang//models/qwen3", "samples": 4, "flags": ["--reward=number"]}
    one = trainer(settings)
    one.submit(2)
    keys, _, _ = one.sample(2)
    verl.tq.kv_clear(keys=keys, partition_id="train")
    one.feeder.close()
    two = trainer(settings)  # as after a checkpoint of the queue: it continues after it
    two.submit(3)
    keys += two.sample(3)[0]
    assert len(by_uid(keys)) == len(Dataset(tmp_path / "run1")) == 5 and len(keys) == sum(len(g.rows) for g in Dataset(tmp_path / "run1"))
