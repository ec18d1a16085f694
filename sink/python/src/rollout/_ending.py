"""When a followed run has ended."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from rollout.errors import CorruptError


def planned_end(run: str) -> int | None:
    """Return the number of samples with an outcome in the log at which the run has ended.

    For a streaming run it is 0 once its report is complete, and before that a number that is
    never reached. Returns None if run.json does not exist. Raises CorruptError if run.json is
    damaged; it is only ever replaced as a whole.
    """
    path = os.path.join(run, "run.json")
    try:
        with open(path, "rb") as f:
            info: dict[str, Any] = json.loads(f.read())
        planned, streamed = int(info["tasks"]["planned"]), info["tasks"].get("stream") is True
        begun = str(info["invocations"][-1]["started_at"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as err:
        raise CorruptError(f"{path}: cannot be read: {err!r}; restore a copy of it, or read the run without follow=True") from err
    try:
        with open(os.path.join(run, "report.json"), "rb") as f:
            report = json.loads(f.read())
        covered = report["coverage"]
        if report["run_id"] == info["id"] and report["state"] == "complete" and instant(report["written_at"]) >= instant(begun):
            return 0 if streamed else min(planned, int(covered["planned"]) - int(covered["unstarted"]))
    except (OSError, ValueError, KeyError, TypeError):
        pass  # no report, or one that is not worth more than none
    return sys.maxsize if streamed else planned


def instant(text: str) -> tuple[str, str]:
    """Convert a UTC time in RFC 3339 to a key that sorts by time, with any number of digits."""
    whole, _, fraction = text.removesuffix("Z").partition(".")
    return whole, fraction
