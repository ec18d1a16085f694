"""rollout.decode and Row.messages give the text that the tokens stand for."""

from __future__ import annotations

import json
import pickle
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from made import Run, Sample

import rollout
from rollout import _text

tokenizers = pytest.importorskip("tokenizers")
SIMULATED = Path(__file__).resolve().parents[3] / "collector" / "letta" / "lettasim" / "model"
"""The tokenizer of the simulated model: tokenizer.json.gz."""
SPANS = [
    (0, "<|im_start|>system\nBe brief. é 🙂<|im_end|>\n<|im_start|>user\nWhat is 6 * 7?<|im_end|>\n<|im_start|>assistant\n"),
    (1, "<think>\nEasy.\n</think>\n\n42<|im_end|>"),
    (2, "\n<|im_start|>user\n<tool_response>\nok\n</tool_response><|im_end|>\n<|im_start|>assistant\n"),
    (1, "Done, 42.<|im_end|>"),
]
WITHOUT_MARKS = [
    {"role": "prompt", "content": "system\nBe brief. é 🙂\nuser\nWhat is 6 * 7?\nassistant\n"},
    {"role": "assistant", "content": "<think>\nEasy.\n</think>\n\n42"},
    {"role": "tool", "content": "\nuser\n<tool_response>\nok\n</tool_response>\nassistant\n"},
    {"role": "assistant", "content": "Done, 42."},
]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    """A tokenizer with a token for each byte, and three marks."""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    made = tokenizers.Tokenizer(tokenizers.models.BPE({letter: i for i, letter in enumerate(alphabet)}, []))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    made.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    return made


@pytest.fixture(scope="module")
def model(tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a model, with the tokenizer as a run keeps it."""
    folder = tmp_path_factory.mktemp("model")
    with pa.output_stream(str(folder / "tokenizer.json.zst"), compression="zstd") as file:
        file.write(tokenizer.to_str().encode())
    return folder


@pytest.fixture
def run(tmp_path: Path, tokenizer: Any) -> Path:
    """A run with one row."""
    ids = [tokenizer.encode(text, add_special_tokens=False).ids for _, text in SPANS]
    offsets = np.cumsum([0, *map(len, ids)]).tolist()
    facts = {"input_ids": [sum(ids, [])], "turn_offsets": [offsets]}
    made = Run(tmp_path / "run")
    made.commit([Sample("g", 0, [offsets[-1]], 1, facts=facts)])
    made.plan(1)
    return made.dir


def row_of(run: Path) -> rollout.Row:
    (row,) = rollout.Dataset(run)[0].rows
    row["turn_roles"] = np.array([role for role, _ in SPANS], np.int8)
    return row


def describe(run: Path, **info: Any) -> None:
    (run / "run.json").write_text(json.dumps({**json.loads((run / "run.json").read_bytes()), **info}))
    _text._load.cache_clear()


def test_a_row_is_decoded_with_the_copy_in_its_run(run: Path, model: Path) -> None:
    shutil.copytree(model, run / "tokenizer" / "abc")
    describe(run, model={"files": "abc"}, config={"tokens": {"tokenizer": "no/such/folder"}})
    row = row_of(run)
    assert rollout.decode(row) == "".join(text for _, text in SPANS) and row.messages() == WITHOUT_MARKS


@pytest.mark.parametrize("relative", [False, True])
def test_a_row_is_decoded_with_the_tokenizer_in_the_settings(run: Path, model: Path, relative: bool) -> None:
    if relative:  # to the folder in which rollout collect ran
        (run.parent / "model").symlink_to(model)
    describe(run, config={"tokens": {"tokenizer": "model" if relative else str(model)}})
    assert rollout.decode(row_of(run)) == "".join(text for _, text in SPANS)


def test_a_tokenizer_can_be_passed(run: Path, model: Path, tokenizer: Any, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    tokenizer.save(str(plain / "tokenizer.json"))
    for given in (model, str(model), model / "tokenizer.json.zst", plain, plain / "tokenizer.json", tokenizer):
        row = row_of(run)
        assert rollout.decode(dict(row), given) == "".join(text for _, text in SPANS)
        assert row.messages(given) == WITHOUT_MARKS


def test_a_copy_of_a_group_knows_its_run(run: Path, model: Path) -> None:
    describe(run, config={"tokens": {"tokenizer": str(model)}})
    group = rollout.Dataset(run)[0]
    for copied in (pickle.loads(pickle.dumps(group)), next(iter(rollout.DataLoader(rollout.Dataset(run).batches(1), num_workers=1)))[0]):
        (row,) = copied.rows
        assert row.run == str(run) and rollout.decode(row) == rollout.decode(group.rows[0])


def test_what_is_missing_is_said(run: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tekken").mkdir()
    (tmp_path / "tekken" / "tekken.json").write_text("{}")
    row = row_of(run)
    for given, error, says in (
        (None, ValueError, "run: the run has no copy of its tokenizer, and its settings name none: pass tokenizer="),
        (tmp_path / "tekken", FileNotFoundError, r"tekken: the folder has no tokenizer\.json; the package tokenizers cannot read tekken\.json: pass an object"),
        (tmp_path, FileNotFoundError, r"the folder has no tokenizer\.json$"),
        (tmp_path / "none", FileNotFoundError, "none"),
        (5, TypeError, "tokenizer=5: must be a path, or an object with a method decode"),
    ):
        with pytest.raises(error, match=says):
            rollout.decode(row, given)
    with pytest.raises(ValueError, match=r"the row does not know its run: pass tokenizer=, such as group\.run"):
        rollout.decode(dict(row))
    describe(run, config={"tokens": {"tokenizer": "gone"}}, model=None)
    with pytest.raises(FileNotFoundError, match="run: the run has no copy of its tokenizer, and there is no folder gone: pass tokenizer="):
        rollout.decode(row)
    _text._load.cache_clear()
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ImportError, match="rollout.decode needs the package tokenizers: pip install tokenizers"):
        rollout.decode(row, model)


def test_a_collected_run_says_what_the_model_said(collect: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"output": {"messages": true}}')
    run = collect("-c", tmp_path / "run.json", "--samples", "1", "--tokenizer", SIMULATED, simulate=("--input-ids", "--scripted", "1"))
    row = rollout.Dataset(run)[0].rows[-1]
    (answer,) = [m["content"] for m in json.loads(row["messages"]) if m.get("message_type") == "assistant_message"]
    last = row.messages()[-1]
    assert (last["role"], last["content"].strip()) == ("assistant", answer) and rollout.decode(row).endswith(f"{answer}<|im_end|>")
    assert [m["role"] for m in row.messages()] == [_text.ROLES[role] for role in row["turn_roles"]]
