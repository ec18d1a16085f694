"""The torch format of Hugging Face datasets accepts the columns that sink/README.md names, null or not."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rollout

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("fmt", ["parquet", "arrow"])
@pytest.mark.parametrize("known", [True, False])
def test_the_columns_of_the_readme_become_tensors(collect: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fmt: str, known: bool) -> None:
    torch, datasets = pytest.importorskip("torch"), pytest.importorskip("datasets")
    found = re.search(r'^columns = \["(.*)"\]$', README, re.MULTILINE)
    assert found
    columns = found[1].split('", "')
    more = ("--reward", "number", "--policy-version", "7") if known else ()
    run = collect("--format", fmt, "--samples", "2", *more, simulate=("--input-ids", "--scripted", "4", "--drift", "0.5"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    rows = datasets.load_dataset(str(run), cache_dir=str(tmp_path))["train"]
    want = [row for group in rollout.Dataset(run) for row in group.rows]
    got = {(r["sample_key"], r["segment_index"]): r for r in rows.with_format("torch", columns=columns, output_all_columns=True)}
    assert len(got) == len(want) >= 8
    for row in want:
        r: dict[str, Any] = got[row["sample_key"], row["segment_index"]]
        for name in ("input_ids", "loss_mask", "logprobs"):
            assert torch.equal(r[name], torch.tensor(row[name]).to(r[name].dtype))
        assert r["versions"].tolist() == row["versions"].tolist() if known else r["versions"] is None
        assert r["reward"].item() == row["reward"] if known else math.isnan(r["reward"].item()) and row["reward"] is None
        assert r["started_at"] == row["started_at"] and r["prompt_length"].item() == row["prompt_length"]
    every = rows.remove_columns("started_at").with_format("torch")
    assert set(every[0]) == set(rows.column_names) - {"started_at"}  # README: every column but this one
    assert len(rows.with_format("torch", columns=columns)[0:3]["input_ids"]) == 3
    with pytest.raises(TypeError, match="datetime64"):
        rows.with_format("torch")[0]  # when this passes, README needs no columns
