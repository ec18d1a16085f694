"""collect() on the ranks of torch.distributed: whole groups, equally many on each rank, one
end."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rollout

pytest.importorskip("torch")

RANK = Path(__file__).parent / "rank_collect.py"
Ranks = Callable[..., list[list[dict[str, Any]]]]


@pytest.fixture
def ranks(stand_in: Callable[..., rollout.Collection], tmp_path: Path) -> Ranks:
    """ranks(world, standin={…}, **wishes) runs a training job and returns what each rank wrote."""

    def run(world: int, standin: dict[str, Any] | None = None, **wishes: Any) -> list[list[dict[str, Any]]]:
        stand_in(None, standin, out=tmp_path / "other").close()  # configures the stand-in
        folder = tmp_path / f"training-{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        if (tmp_path / "run").exists():
            (tmp_path / "run").rename(folder / "run")
        wishes = {"program": str(tmp_path / "rollout"), **wishes}
        processes = [subprocess.Popen([sys.executable, RANK, folder, str(r), str(world), json.dumps(wishes)]) for r in range(world)]
        try:
            for p in processes:
                assert p.wait(240) == 0
        finally:
            for p in processes:
                p.kill()
                p.wait()
        (folder / "run").rename(tmp_path / "run")
        return [[json.loads(line) for line in (folder / f"rank-{r}.jsonl").read_text().splitlines()] for r in range(world)]

    return run


@pytest.mark.parametrize("iteration", ["sync", "async"])
def test_every_rank_gets_as_many_groups(ranks: Ranks, tmp_path: Path, iteration: str) -> None:
    first, second = ranks(2, tasks=7, options={"max_ahead": 2}, **{"async": iteration == "async"})
    assert [r["group"] for r in first[:-1]] == ["g0", "g2", "g4"] and [r["group"] for r in second[:-1]] == ["g1", "g3", "g5"]
    assert all(r["rows"] == [0, 1] for r in first[:-1] + second[:-1])
    assert [r["state"] for r in first[:-1]] == [r["state"] for r in second[:-1]]
    assert first[-1] == second[-1] == {"end": {"remainder": {"groups": 1, "samples": 2, "rows": 2}}}
    assert json.loads((tmp_path / "run/ack.json").read_text())["seq"] == 6, "what was not given must not be acknowledged"
    # The remaining group comes first when there are more.
    again = ranks(2, tasks=9)
    assert [[r.get("group") for r in rank] for rank in again] == [["g6", None], ["g7", None]]
    back = ranks(2, tasks=9, state=first[0]["state"])
    assert [[r.get("group") for r in rank] for rank in back] == [["g2", "g4", "g6", None], ["g3", "g5", "g7", None]]
    state = first[1]["state"]
    back = ranks(2, tasks=9, load=[state, state])
    assert [[r.get("group") for r in rank] for rank in back] == [["g4", "g6", None], ["g5", "g7", None]]
    other = {**state, "run_id": "other"}
    for load, text in (([state, other], "the ranks have different states"), ([other, other], "the state is from run 'other'")):
        one, two = ranks(2, tasks=9, load=load)
        assert one == two and one[-1]["error"] == "StateError" and text in one[-1]["text"], (one, two)


def test_groups_that_filters_leave_out_are_in_no_round(ranks: Ranks) -> None:
    first, second = ranks(2, tasks=19, left_out=6, options={"max_ahead": 2})
    assert [r.get("group") for r in first] == ["g0", "g12", None] and [r.get("group") for r in second] == ["g6", "g18", None]


def test_a_crash_of_the_collector_is_seen_by_no_rank(ranks: Ranks) -> None:
    first, second = ranks(2, standin={"kill": 3}, tasks=6)
    assert [r.get("group") for r in first] == ["g0", "g2", "g4", None] and [r.get("group") for r in second] == ["g1", "g3", "g5", None]


def test_an_error_of_rank_0_is_raised_on_all(ranks: Ranks) -> None:
    for wishes, kind, text in (
        ({"standin": {"exit": [5, "rollout: no server\nhint: start one"]}}, "ServerError", "no server"),
        ({"options": {"columns": 7}}, "TypeError", "must be a list of strings"),
        ({"fail": True}, "KeyError", "mine"),
        ({"options": {"flags": ["--max-ahead=1"], "max_ahead": 1}}, "ValueError", "must be at least 2, one group for each rank"),
    ):
        first, second = ranks(2, tasks=3, **wishes)
        assert first[-1] == second[-1] and first[-1]["error"] == kind and text in first[-1]["text"], (wishes, first)


def test_waiting_ends_on_all_ranks(ranks: Ranks) -> None:
    first, second = ranks(2, tasks=3, options={"timeout": 3, "ack": "manual", "max_ahead": 2})
    assert [r.get("error") for r in first] == [r.get("error") for r in second] == [None, "TimeoutError"]


def test_an_ack_in_the_middle_of_a_round_acknowledges_those_before(ranks: Ranks) -> None:
    # With three groups ahead each round is half full when the trainer must acknowledge.
    first, second = ranks(2, tasks=6, ack=True, options={"timeout": 1, "ack": "manual", "max_ahead": 3})
    assert [r.get("group") for r in first] == ["g0", "g2", "g4", None] and [r.get("group") for r in second] == ["g1", "g3", "g5", None]
