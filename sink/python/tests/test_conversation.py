"""Row.messages returns the same messages as the program: rollout view, rollout export and the scorers of rollout
rescore. testdata/conversations.json of the Go package decode contains what the program returns."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rollout._calls import raw_members
from rollout._conversation import Decoder
from rollout._stored import stored

tokenizers = pytest.importorskip("tokenizers")
ROOT = Path(__file__).resolve().parents[3]
DATA = ROOT / "cmd/rollout/internal/decode/testdata"
CASES = [json.loads(line) for line in (DATA / "conversations.json").read_text(encoding="utf-8").split("\n") if line]

ROLES = ("prompt", "assistant", "tool", "user")
"""The names of the values of turn_roles."""


@pytest.fixture(scope="module")
def rendered() -> Any:
    """The texts of the templates, by template and by case."""
    return json.loads(gzip.decompress((ROOT / "testdata/chat-templates/expected.json.gz").read_bytes()))


def byte_tokenizer(special: list[str]) -> Any:
    """Return a tokenizer with one token per byte, and special tokens."""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    made = tokenizers.Tokenizer(tokenizers.models.BPE({letter: i for i, letter in enumerate(alphabet)}, []))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    made.add_special_tokens(special)
    return made


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_the_messages_are_the_program_s(case: dict[str, Any], rendered: Any) -> None:
    spans = [(ROLES.index(span["role"]), span["text"]) for span in case["spans"]]
    if "template" in case:
        text = rendered[case["template"]][case["case"]]["out"]
        for old, new in case.get("replace", {}).items():
            text = text.replace(old, new)
        spans.insert(0, (0, text))
    tokenizer = byte_tokenizer(case["special"])
    ids = [tokenizer.encode(text, add_special_tokens=False).ids for _, text in spans]
    row = {
        "input_ids": np.array(sum(ids, []), np.int32),
        "turn_offsets": np.cumsum([0, *map(len, ids)]).astype(np.int32),
        "turn_roles": np.array([role for role, _ in spans], np.int8),
    }
    assert Decoder(tokenizer).messages(row) == case["messages"]


def test_stored_messages_are_read_as_the_program_reads_them() -> None:
    cases = [raw_members(line) for line in (DATA / "stored.json").read_text(encoding="utf-8").splitlines()]
    assert len(cases) > 20
    for case in cases:
        assert stored(case["stored"]) == json.loads(case["messages"]), case["stored"]
