"""What each trainer makes of a batch: for every token that it trains on, the log-probability that the
model gives to it and the log-probability that the row contains.

The code that arranges the tokens and shifts them is cut out of the trainers' pinned wheels. With
ROLLOUT_FRAMEWORKS, it comes from the installed packages (make frameworks), except OpenRLHF, which needs
vLLM. slime, prime-rl and NeMo-RL have no usable package, so their code is not run: the few lines here
do what their sources say.
"""

from __future__ import annotations

import dataclasses
import importlib
import logging
import os
import re
import sys
import tempfile
import types
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import frameworks
import trainers

import rollout
from rollout import Group

np, torch = frameworks.np, frameworks.torch
PAGE = Path(__file__).resolve().parents[1] / "TRAINERS.md"
Terms = Iterator[tuple[Any, Any]]
"""For some rows: the model's log-probabilities of the trained tokens, and the recorded ones."""


def logprob(before: Any, token: Any) -> Any:
    """A model: the log-probability of a token depends on the token before it."""
    return -((before * 31 + token * 17) % 997 + 1).double() / 1000


def told(groups: Sequence[Group]) -> list[Group]:
    """Return groups whose log-probabilities come from the model."""

    def row_of(row: dict[str, Any]) -> dict[str, Any]:
        ids, mask = torch.as_tensor(row["input_ids"].astype(np.int64)), row["loss_mask"]
        values = torch.nn.functional.pad(logprob(ids[:-1], ids[1:]), (1, 0)).numpy()
        return {**row, "logprobs": np.where(mask == 1, values, 0.0).astype(np.float32)}

    return [replace(group, rows=[row_of(row) for row in group.rows]) for group in groups]


def next_token(ids: Any) -> Any:
    """Return what a model computes for input_ids [B, T]: at each position, the log-probability of the
    next token. The last position has none."""
    return torch.nn.functional.pad(logprob(ids[:, :-1], ids[:, 1:]), (0, 1))


@cache
def block(name: str) -> Callable[..., Any]:
    """Return the function of a block of TRAINERS.md."""
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    (code,) = (b for b in blocks if f"def {name}(" in b)
    names: dict[str, Any] = {}
    exec(compile(code[: code.index("\n\n\nprint(")], "TRAINERS.md", "exec"), names)
    return names[name]


def functions(package: str, path: str, names: dict[str, Any], *wanted: str) -> SimpleNamespace:
    """Return functions of an installed package or, with these names, of its wheel."""
    if not frameworks.INSTALLED or path == "skyrl/train/utils/trainer_utils.py" and sys.version_info < (3, 12):  # it needs Python 3.12
        return trainers.functions(package, path, names, *wanted)
    module = importlib.import_module(path.removesuffix(".py").replace("/", "."))
    return SimpleNamespace(**{name: getattr(module, name) for name in wanted})


def trl(groups: list[Group]) -> Terms:
    """TRL packs the rows of a batch into a trie (packing.py, DataCollatorForRollout)."""
    found = frameworks.trl()
    with frameworks.modules(**({} if frameworks.INSTALLED else {"trl__experimental__async_grpo__async_rollout_worker": found})):
        samples = rollout.to_trl(groups, versions=lambda row: (0, 0))
    row = found.TreeRow()
    for sample in samples:
        row.add({f.name: getattr(sample, f.name) for f in dataclasses.fields(sample)})
    batch = found.DataCollatorForRollout(pad_token_id=0, metrics=defaultdict(list)).torch_call([[row]])
    new = logprob(batch["input_ids"], batch["shift_labels"]).flatten()[batch["token_index"][0]]  # as in compute_loss (async_grpo_trainer.py:1523)
    yield new, batch["old_log_probs"][0]


class Fields(dict[str, Any]):
    """A TensorDict of padded tensors, as far as verl's loss uses it."""

    def select(self, *names: str) -> Fields:
        return Fields({name: self[name] for name in names})

    def to_padded_tensor(self) -> Fields:
        return self


def verl_batch(groups: list[Group], **options: Any) -> tuple[Fields, dict[str, Any], list[dict[str, Any]]]:
    """Return the fields of to_verl as padded tensors, the functions that verl uses on them, and the fields of each row."""
    with frameworks.modules(verl__utils__tensordict_utils=SimpleNamespace(list_of_dict_to_tensordict=list)):
        rows = rollout.to_verl(groups, versions=lambda row: (0, 0), **options)["fields"]
    pad = torch.nn.utils.rnn.pad_sequence
    prompts = [row["prompts"] for row in rows]
    data = Fields({
        "prompts": pad([p.flip(0) for p in prompts], batch_first=True).flip(1),
        "attention_mask": torch.cat([
            pad([torch.ones_like(p) for p in prompts], batch_first=True).flip(1), pad([torch.ones_like(r["responses"]) for r in rows], batch_first=True)
        ], 1),
        "old_log_probs": pad([row["rollout_log_probs"] for row in rows], batch_first=True),
    })  # fmt: skip
    for name in ("responses", "response_mask", "rm_scores", *(["rollout_is_weights"] if "rollout_is_weights" in rows[0] else [])):
        data[name] = pad([row[name] for row in rows], batch_first=True)
    plain = SimpleNamespace(get_non_tensor_data=lambda data, key, default: default)
    padding = trainers.functions("verl", "verl/workers/utils/padding.py", {"torch": torch, "F": torch.nn.functional, "tu": plain}, "no_padding_2_padding")
    return data, {"no_padding_2_padding": padding.no_padding_2_padding}, rows


def verl(groups: list[Group]) -> Terms:
    """verl's model sees the tokens without padding, and no_padding_2_padding takes the responses."""
    if frameworks.INSTALLED:
        from verl.workers.utils.padding import no_padding_2_padding

        fields = rollout.to_verl(groups, versions=lambda row: (0, 0))["fields"]
        new = no_padding_2_padding(torch.cat([next_token(ids[None])[0] for ids in fields["input_ids"].unbind()]), fields)
        data = fields.select("response_mask", "rollout_log_probs").to_padded_tensor()
        yield new[data["response_mask"] == 1], data["rollout_log_probs"][data["response_mask"] == 1]
        return
    data, parts, rows = verl_batch(groups)
    values = torch.cat([next_token(row["input_ids"][None])[0] for row in rows])
    new = parts["no_padding_2_padding"](values, data)
    yield new[data["response_mask"] == 1], data["old_log_probs"][data["response_mask"] == 1]


@contextmanager
def tinker() -> Iterator[SimpleNamespace]:
    """Make tinker importable with the modules of its wheel that define a Datum. Yield tinker_cookbook's functions for
    them. The rest of the package needs clients of a service."""
    if frameworks.INSTALLED:
        yield SimpleNamespace(**vars(importlib.import_module("tinker_cookbook.rl.data_processing")))
        return
    with tempfile.TemporaryDirectory() as folder:
        (wheel,) = trainers.FOLDER.glob("tinker-*.whl")
        with zipfile.ZipFile(wheel) as z:
            z.extractall(folder)
        before = dict(sys.modules)
        for name in ("tinker", "tinker.types"):
            made: Any = types.ModuleType(name)
            made.__path__ = [os.path.join(folder, *name.split("."))]
            sys.modules[name] = made
        sys.modules.setdefault("sniffio", types.ModuleType("sniffio"))
        try:
            package: Any = sys.modules["tinker"]
            package.types = sys.modules["tinker.types"]
            for name, of in (("Datum", "datum"), ("ModelInput", "model_input"), ("TensorData", "tensor_data"), ("EncodedTextChunk", "encoded_text_chunk")):
                value = getattr(importlib.import_module(f"tinker.types.{of}"), name)
                setattr(package, name, value)
                setattr(package.types, name, value)
            yield _cookbook(package)
        finally:
            for name in set(sys.modules) - set(before):
                if name.partition(".")[0] in ("tinker", "sniffio"):
                    del sys.modules[name]


def _cookbook(package: Any) -> SimpleNamespace:
    names = {"tinker": package, "DataValidationError": ValueError}
    shift = trainers.functions(
        "tinker_cookbook", "tinker_cookbook/supervised/common.py", names, "create_rightshifted_model_input_and_leftshifted_targets"
    )
    names |= {"torch": torch, "dataclasses": dataclasses, "TensorData": package.TensorData, "FlatObElem": int, "FlatOb": list[int], "ProvenanceSpan": object}
    names |= {**vars(shift), "PARSE_ERROR_MASKED_METRIC_KEY": "masked"}
    wanted = "_is_prefix", "_flat_ob_token_len", "_flat_ob_to_model_input", "_flatten_chunks", "trajectory_to_data", "compute_advantages"
    return trainers.functions("tinker_cookbook", "tinker_cookbook/rl/data_processing.py", names, *wanted)


def tinker_terms(groups: list[Group]) -> Terms:
    """Tinker takes the log-probability of target_tokens[i] after model_input[: i + 1]."""
    with tinker():
        data = rollout.to_tinker(groups)
    rows = [row for group in groups for row in group.rows]
    for datum, row in zip(data, rows, strict=True):
        inputs = {name: value.to_torch() for name, value in datum.loss_fn_inputs.items()}
        trained = torch.as_tensor(row["loss_mask"][1:]) == 1 if not inputs["advantages"].any() else inputs["advantages"] != 0
        new = logprob(torch.tensor(datum.model_input.to_ints()), inputs["target_tokens"])
        yield new[trained], inputs["logprobs"][trained]


@dataclasses.dataclass(frozen=True)
class TrajectoryID:
    """SkyRL's (skyrl/train/generators/base.py:13)."""

    instance_id: str
    repetition_id: int

    def to_string(self) -> str:
        return f"{self.instance_id}_{self.repetition_id}"


def skyrl(groups: list[Group]) -> Terms:
    """SkyRL validates the batch, pads it on the left, and takes the last columns (model_wrapper.py:393)."""
    names = {"np": np, "torch": torch, "logger": logging.getLogger("skyrl")}
    check = functions("skyrl", "skyrl/train/utils/trainer_utils.py", names, "validate_generator_output", "_validate_step_wise_fields")
    wanted = "_verify_inputs", "convert_prompts_responses_to_batch_tensors", "compute_prompt_boundaries"
    layout = functions("skyrl", "skyrl/train/dataset/preprocess.py", names, *wanted)
    out = block("to_skyrl")(groups, TrajectoryID)
    check.validate_generator_output(len({t.instance_id for t in out["trajectory_ids"]}), out, step_wise=True)
    assert len(layout.compute_prompt_boundaries([t.instance_id for t in out["trajectory_ids"]])) == len(groups)
    scores = [[0.0] * (len(ids) - 1) + [reward] for ids, reward in zip(out["response_ids"], out["rewards"])]  # as postprocess_generator_output
    ids, _, _, rewards, mask, old, _ = layout.convert_prompts_responses_to_batch_tensors(
        SimpleNamespace(pad_token_id=0), out["prompt_token_ids"], out["response_ids"], scores, out["loss_masks"], out["rollout_logprobs"]
    )
    assert rewards[:, -1].tolist() == out["rewards"]
    new = next_token(ids)[:, -mask.shape[1] - 1 : -1]
    yield new[mask == 1], old[mask == 1]


def areal(groups: list[Group]) -> Terms:
    """AReaL checks each row, pads on the right, and rolls mask and log-probabilities (trainer/ppo/actor.py:176)."""
    names = {"torch": torch, "logging": logging, "InteractionWithTokenLogpReward": type("Interaction", (), {})}
    check = functions("areal", "areal/infra/workflow_executor.py", names, "check_trajectory_format")
    wanted = "concat_padded_tensors", "_pad_cat_dim0", "is_multi_modal_key"
    data = functions("areal", "areal/utils/data.py", {"torch": torch, "F": torch.nn.functional}, *wanted)
    rows = list(block("to_areal")(groups))
    assert all(check.check_trajectory_format(row, 1, set(rows[0]), refusing()) for row in rows)
    batch = data.concat_padded_tensors(rows)
    kinds = {"input_ids": torch.int32, "loss_mask": torch.int32, "versions": torch.int32, "logprobs": torch.float32, "rewards": torch.float32}
    assert {name: batch[name].dtype for name in kinds} == kinds
    mask, old = torch.roll(batch["loss_mask"], -1, -1), torch.roll(batch["logprobs"], -1, -1)
    yield next_token(batch["input_ids"].long())[mask == 1], old[mask == 1]


def refusing() -> Any:
    """A logger for which a warning is an error."""

    def warning(text: str) -> None:
        raise AssertionError(text)

    return SimpleNamespace(warning=warning, info=warning)


def openrlhf(groups: list[Group]) -> Terms:
    """OpenRLHF makes an Experience of each response; its tensors begin at the second token."""
    maker = trainers.method("openrlhf", "openrlhf/trainer/ppo_utils/samples_generator.py", "_process_response_into_experience")
    process = trainers.run([maker], {**frameworks._names(), "Experience": SimpleNamespace})[maker.name]
    rows = [row for group in groups for row in group.rows if row["reward"] is not None]
    for response, row in zip(block("to_openrlhf")(groups), rows, strict=True):
        made = process(None, response, max_len=1 << 20)
        assert made.rewards.tolist() == made.scores.tolist() == [row["reward"]] and bool(made.truncated[0]) == row["truncated"]
        trained = made.action_mask[0] == 1
        yield next_token(made.sequences)[0][:-1][trained], made.rollout_log_probs[0][trained]


def slime(groups: list[Group]) -> Terms:
    """slime/ray/rollout.py:677: the mask has response_length entries, for the last tokens."""
    for sample in rollout.to_slime(groups):
        n = sample["response_length"]
        assert len(sample["loss_mask"]) == len(sample["rollout_log_probs"]) == n
        trained = torch.tensor(sample["loss_mask"]) == 1
        new = next_token(torch.tensor(sample["tokens"])[None])[0][-n - 1 : -1]
        yield new[trained], torch.tensor(sample["rollout_log_probs"])[trained]


def prime_rl(groups: list[Group]) -> Terms:
    """prime_rl/trainer/batch.py:346: lists of equal length. The trainer shifts the model's values to the right."""
    for sample in block("to_prime_rl")(groups, "env", 1.0):
        lists = [sample[name] for name in ("token_ids", "mask", "logprobs", "temperatures", "advantages")]
        assert len({len(values) for values in lists}) == 1 and all(a == 0 for a, m in zip(sample["advantages"], sample["mask"]) if not m)
        trained = torch.tensor(sample["mask"])
        new = torch.roll(next_token(torch.tensor(sample["token_ids"])[None])[0], 1)
        yield new[trained], torch.tensor(sample["logprobs"])[trained]


def nemo_rl(groups: list[Group]) -> Terms:
    """nemo_rl/algorithms/grpo.py:1910: a message is trained on if it is the assistant's and has
    generation_logprobs. The loss reads the entries from the second on (loss_functions.py:383)."""
    for sample in block("to_nemo_rl")(groups):
        ids = torch.cat([m["token_ids"] for m in sample["message_log"]])
        mask, old = [], []
        for m in sample["message_log"]:
            own = m["role"] == "assistant" and "generation_logprobs" in m
            mask.append(torch.full(m["token_ids"].shape, own))
            old.append(m.get("generation_logprobs", torch.zeros(len(m["token_ids"]))))
        trained = torch.cat(mask)[1:]
        yield next_token(ids[None])[0][:-1][trained], torch.cat(old)[1:][trained]


COLLATES: dict[str, Callable[[list[Group]], Terms]] = {
    "trl": trl, "verl": verl, "tinker": tinker_terms, "skyrl": skyrl, "areal": areal, "openrlhf": openrlhf,
    "slime": slime, "prime_rl": prime_rl, "nemo_rl": nemo_rl,
}  # fmt: skip
