"""collect() with an agent harness: a program, the scripted engine, and a scoring program.

The harness has a subagent, and makes a call for a title, which is not trained on.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from waiting import PATIENCE

import rollout
from rollout import advantages, collate

AGENT = Path(__file__).parent / "subagents.py"
SCORE = """
import json, os, pathlib, sys
for line in sys.stdin:
    sample = json.loads(line)
    if not sample["trial"]:
        sample["result"] = (pathlib.Path(sample["workdir"]) / "result.txt").read_text()
    print(json.dumps({"reward": sample["id"] / 2, "details": sample}), flush=True)
"""


def tasks(n: int) -> list[dict[str, Any]]:
    return [{"id": f"t{i}", "prompt": f"Write two notes. [script:harness seed={i} subagent]", "answer": "42"} for i in range(n)]


def prompt_of(task_id: str) -> str:
    return str(tasks(9)[int(task_id[1:])]["prompt"])


@pytest.fixture
def settings(engine: str, tmp_path: Path) -> dict[str, Any]:
    """The settings of a collector of a harness with a secret, a work folder and a scoring program."""
    (tmp_path / "fixture").mkdir()
    (tmp_path / "fixture/given.txt").write_text("given")
    return {
        "harness": {
            "command": [sys.executable, str(AGENT), "{prompt}"],
            "env": {"OPENAI_BASE_URL": "{base_url}/v1", "OPENAI_API_KEY": "{key}", "SERVICE_TOKEN": "open sesame"},
            "workdir": str(tmp_path / "fixture"),
        },
        "engine": [engine],
        "reward": {"kind": "command", "command": [sys.executable, "-c", SCORE]},
    }


def test_a_loop_over_a_harness(settings: dict[str, Any], tmp_path: Path, run_program: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "attempts"))
    (tmp_path / "attempts").mkdir()
    groups: list[rollout.Group] = []
    with rollout.collect(settings, iter(tasks(4)), out=tmp_path / "run", samples=2, max_ahead=1, restarts=9, timeout=PATIENCE) as c:
        for group in c:
            groups.append(group)
            c.set_version(len(groups))
            if len(groups) == 1:
                os.kill(c.status()["pid"], signal.SIGKILL)
                saved = c.state_dict()
    assert sorted(group.rows[0]["task_id"] for group in groups) == ["t0", "t1", "t2", "t3"] and c.restarts == 1
    with rollout.collect(settings, iter(tasks(4)), out=tmp_path / "run", samples=2, state=saved, timeout=PATIENCE) as c:
        assert [group.id for group in c] == [group.id for group in groups[1:]]
    assert [row["policy_version_min"] for group in groups[1:] for row in group.rows] == [1] * 4 + [2] * 4 + [3] * 4
    run_program("verify", tmp_path / "run")
    assert [group.id for group in rollout.Dataset(tmp_path / "run", follow=True)] == [group.id for group in groups]
    assert not list((tmp_path / "attempts").glob("rollout-*")) and not list((tmp_path / "run/sessions/open").iterdir())
    for path in (p for p in tmp_path.rglob("*") if p.is_file()):
        assert b"sesame" not in path.read_bytes(), path

    for group in groups:
        samples = {row["sample_index"]: [r for r in group.rows if r["sample_index"] == row["sample_index"]] for row in group.rows}
        assert len(samples) == group.size == 2
        for rows in samples.values():
            # The rows of the subagent belong to the sample, with its reward. There is no row of the title.
            assert {row["chain_kind"] for row in rows} == {"main", "subagent"}
            assert all((row["chain"] == 0) == (row["chain_kind"] == "main") for row in rows)
            assert [row["segment_index"] for row in rows] == list(range(len(rows)))
            assert len({row["reward"] for row in rows}) == 1 and rows[0]["reward"] is not None
            assert all(row["loss_mask"].any() and row["verification"] == "exact" and row["messages"] is None for row in rows)
            details = json.loads(rows[0]["reward_details"])
            assert details["messages"] == [prompt_of(rows[0]["task_id"])] and details["answer"] == "42"
            assert details["exit_code"] == 0 and details["result"] == "given ame" and not os.path.exists(details["workdir"])
            assert [m["role"] for m in details["conversation"]][:4] == ["system", "user", "assistant", "tool"]
            assert details["output"] == details["conversation"][-1]["content"] and "The answer is 42." in details["output"]


def test_a_subagent_shares_the_advantage_and_the_weight_of_its_sample(settings: dict[str, Any], tmp_path: Path) -> None:
    with rollout.collect(settings, tasks(2), out=tmp_path / "run", samples=3, timeout=PATIENCE) as c:
        groups = list(c)
    batch = collate.padded(0)(groups)
    rows = [row for group in groups for row in group.rows]
    assert len(batch["reward"]) == len(rows) >= 2 * 6
    advantage = np.asarray(advantages.grpo(batch["reward"], batch["group"], batch["sample"], preset="trl"))
    weight = np.asarray(rollout.loss_weights(batch["tokens"], batch["sample"], mode="seq-mean-token-mean"))
    for number in range(6):
        of = np.flatnonzero(np.asarray(batch["sample"]) == number)
        assert {rows[i]["chain_kind"] for i in of} == {"main", "subagent"} and len({rows[i]["sample_key"] for i in of}) == 1
        assert len(set(advantage[of])) == 1
        assert (weight * np.asarray(batch["tokens"]))[of].sum() == pytest.approx(1 / 6)
    assert np.count_nonzero(advantage) > 0


def test_auxiliary_conversations_are_rows_on_request(settings: dict[str, Any], tmp_path: Path) -> None:
    with rollout.collect(settings, tasks(1), out=tmp_path / "run", flags=["--chains=all"], timeout=PATIENCE) as c:
        (group,) = c
    assert {row["chain_kind"] for row in group.rows} == {"main", "subagent", "auxiliary"}
    assert all(row["loss_mask"].any() for row in group.rows)
