"""rollout.decode and Row.messages give the text that the tokens stand for."""

from __future__ import annotations

import hashlib
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
from rollout.errors import CorruptError

tokenizers = pytest.importorskip("tokenizers")
SIMULATED = Path(__file__).resolve().parents[3] / "collector" / "letta" / "lettasim" / "model"
"""The tokenizer of the simulated model: tokenizer.json.gz."""
SPANS = [
    (0, "<|im_start|>system\nBe brief. é 🙂<|im_end|>\n<|im_start|>user\nWhat is 6 * 7?<|im_end|>\n<|im_start|>assistant\n"),
    (1, "<think>\nEasy.\n</think>\n\n42<|im_end|>"),
    (2, "\n<|im_start|>user\n<tool_response>\nok\n</tool_response><|im_end|>\n<|im_start|>assistant\n"),
    (1, "Done, 42.<|im_end|>"),
]
CONVERSATION = [
    {"role": "system", "content": "Be brief. é 🙂"},
    {"role": "user", "content": "What is 6 * 7?"},
    {"role": "assistant", "content": "42", "reasoning_content": "Easy."},
    {"role": "tool", "content": "ok"},
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


def keep(run: Path, model: Path, tokenizer: Any) -> None:
    """Give a run its copy of a model."""
    body = tokenizer.to_str().encode()
    digest = hashlib.sha256(f"tokenizer.json {len(body)}\n".encode() + body).hexdigest()
    shutil.copytree(model, run / "tokenizer" / digest)
    describe(run, model={"files": digest})


def test_a_row_is_decoded_with_the_copy_in_its_run(run: Path, model: Path, tokenizer: Any) -> None:
    keep(run, model, tokenizer)
    row = row_of(run)
    assert rollout.decode(row) == "".join(text for _, text in SPANS) and row.messages() == CONVERSATION


def test_a_tokenizer_can_be_passed(run: Path, model: Path, tokenizer: Any, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    tokenizer.save(str(plain / "tokenizer.json"))
    for given in (model, str(model), model / "tokenizer.json.zst", plain, plain / "tokenizer.json", tokenizer):
        row = row_of(run)
        assert rollout.decode(dict(row), given) == "".join(text for _, text in SPANS)
        assert row.messages(given) == CONVERSATION


def test_a_copy_of_a_group_knows_its_run(run: Path, model: Path, tokenizer: Any) -> None:
    keep(run, model, tokenizer)
    group = rollout.Dataset(run)[0]
    for copied in (pickle.loads(pickle.dumps(group)), next(iter(rollout.DataLoader(rollout.Dataset(run).batches(1), num_workers=1)))[0]):
        (row,) = copied.rows
        assert row.run == str(run) and rollout.decode(row) == rollout.decode(group.rows[0])


def test_what_is_missing_is_said(run: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tekken").mkdir()
    (tmp_path / "tekken" / "tekken.json").write_text("{}")
    (tmp_path / "fleet").mkdir()
    (tmp_path / "fleet" / "fleet.json").write_text("{}")
    row = row_of(run)
    for given, error, says in (
        (None, FileNotFoundError, "run: the run has no copy of its tokenizer: pass tokenizer="),
        (tmp_path / "tekken", FileNotFoundError, r"tekken: the folder has no tokenizer\.json; the package tokenizers cannot read tekken\.json: pass an object"),
        (tmp_path, FileNotFoundError, r"the folder has no tokenizer\.json$"),
        (tmp_path / "none", FileNotFoundError, "none"),
        (tmp_path / "fleet", FileNotFoundError, "fleet: there is no run.json, so there is no copy of the tokenizer: pass tokenizer="),
        (5, TypeError, "tokenizer=5: must be a path, or an object with a method decode"),
    ):
        with pytest.raises(error, match=says):
            rollout.decode(row, given)
    with pytest.raises(ValueError, match=r"the row does not know its run: pass tokenizer=, such as group\.run"):
        rollout.decode(dict(row))
    describe(run, model={"files": "gone"})
    with pytest.raises(FileNotFoundError, match="run: the run's copy of its tokenizer is missing: restore it, or pass tokenizer="):
        rollout.decode(row)
    _text._load.cache_clear()
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ImportError, match="rollout.decode needs the package tokenizers: pip install tokenizers"):
        rollout.decode(row, model)


@pytest.fixture(scope="module")
def collected(collect: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    settings = tmp_path_factory.mktemp("settings") / "run.json"
    settings.write_text('{"output": {"messages": true}}')
    return collect("-c", settings, "--samples", "1", "--tokenizer", SIMULATED, simulate=("--input-ids", "--scripted", "1"))


def test_a_collected_run_says_what_the_model_said(collected: Path, run_program: Callable[..., str]) -> None:
    row = rollout.Dataset(collected)[0].rows[-1]
    (answer,) = [m["content"] for m in json.loads(row["messages"]) if m.get("message_type") == "assistant_message"]
    last = row.messages()[-1]
    assert (last["role"], last["content"]) == ("assistant", answer.strip()) and rollout.decode(row).endswith(f"{answer}<|im_end|>")
    exported = [json.loads(line) for line in run_program("export", collected, "--to", "openai-messages").splitlines()]
    assert [line["messages"] for line in exported] == [row.messages() for group in rollout.Dataset(collected) for row in group.rows]


def test_without_a_known_template_the_stored_messages_are_returned(run: Path) -> None:
    row = row_of(run)
    row["messages"] = '[{"role": "developer", "content": "Be brief."}, {"message_type": "assistant_message", "content": "42"}]'
    assert row.messages() == [{"role": "system", "content": "Be brief."}, {"role": "assistant", "content": "42"}]  # there is no tokenizer

    class Plain:
        """A tokenizer whose special tokens are not known."""

        def decode(self, ids: list[int], skip_special_tokens: bool) -> str:
            return str(len(ids))

    lengths = np.diff(row["turn_offsets"]).tolist()
    assert [(m["role"], m["content"]) for m in row.messages(Plain())] == [*zip(("unknown", "assistant", "tool", "assistant"), map(str, lengths))]


def files_of(copied: Path) -> list[Path]:
    return sorted(path for path in copied.glob("tokenizer/*/**/*") if path.is_file())


def test_a_copy_that_has_changed_is_refused(collected: Path, run_program: Callable[..., str], tmp_path: Path) -> None:
    names = [path.relative_to(collected) for path in files_of(collected)]
    assert {path.name for path in names} >= {"chat_template.jinja", "tokenizer_config.json"} and len(names) >= 3
    for i, (name, change) in enumerate((name, change) for name in names for change in ("a byte", "the end", "gone", "another")):
        run = tmp_path / str(i)
        shutil.copytree(collected, run)
        body = (run / name).read_bytes()
        (run / name).unlink()
        if change == "another":
            (run / name).write_bytes(body)
            (run / name).with_name("more.json").write_bytes(b"{}")
        elif change == "a byte":
            (run / name).write_bytes(body[: len(body) // 2] + bytes([body[len(body) // 2] ^ 1]) + body[len(body) // 2 + 1 :])
        elif change == "the end":
            (run / name).write_bytes(body[:-1])
        with pytest.raises(CorruptError, match="the run's copy of its tokenizer has changed: .*; restore the copy; or remove it, and pass tokenizer="):
            rollout.decode(rollout.Dataset(run)[0].rows[0])
        run_program("export", run, "--to", "openai-messages", status=9)
        run_program("rescore", run, "--reward", "number", status=9)
        assert rollout.decode(rollout.Dataset(run)[0].rows[0], SIMULATED)
