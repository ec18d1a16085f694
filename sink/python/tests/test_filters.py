"""The words of filters. test_counts.py tests what they drop and count."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from rollout import Where
from rollout.runs.select import FLAGS, GRADES, STATUSES


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (lambda: Where(verification="exakt"), "count_verified, exact; did you mean 'exact'"),  # type: ignore[arg-type]
        (lambda: Where(verification="verified"), "verification='verified': must be one of unverified, count_verified, exact$"),  # type: ignore[arg-type]
        (lambda: Where(status={"complete"}), "status='complete': must be one of completed, truncated, max_steps; did you mean 'completed'"),
        (lambda: Where(status=["completed", "error"]), "status='error': must be one of completed, truncated, max_steps$"),
        (lambda: Where(flags={"Cut"}), "flags='Cut': must be one of cut, .*, padded_id; did you mean 'cut'"),
        (lambda: Where(max_staleness=1), "needs policy_version"),
        (lambda: Where(max_staleness=1, policy_version=3), "needs unknown_version"),
        (lambda: Where(policy_version=3), "need max_staleness"),
    ],
)
def test_bad_filters(bad: Callable[[], Where], says: str) -> None:
    with pytest.raises((ValueError, TypeError), match=says):
        bad()


def test_the_words_are_those_that_the_program_writes() -> None:
    root = Path(__file__).resolve().parents[3]

    def words(file: str, name: str) -> tuple[str, ...]:
        said = re.search(rf"\b{name}\s*= .*?string\{{(.*?)\}}", (root / file).read_text(encoding="utf-8"))
        assert said, f"{file}: has no {name}"
        return tuple(json.loads(f"[{said[1]}]"))

    assert words("tokenize/words.go", "flagWords") == FLAGS
    assert words("sink/sample.go", "dataStatuses") == STATUSES
    assert words("tokenize/words.go", "grades")[:3] == GRADES[::-1]  # quarantined samples have no rows
