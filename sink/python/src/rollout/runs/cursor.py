"""Cursors, which record the progress of a trainer in the log of a run, and the test for the end
of a run.

A cursor is a dict {"run_id": str, "seq": S, "groups": N}. It covers all groups that commits before
S completed, and the first N groups that commit S completed. RUN/ack.json contains the last
acknowledged cursor.
"""

from __future__ import annotations

import contextlib
import json
import operator
import os
import sys
from collections.abc import Mapping
from typing import Any

from rollout.errors import CorruptError, StateError
from rollout.runs import _store as store
from rollout.runs.entries import entries

Place = tuple[int, int]
"""The values seq and groups of a cursor. Within a run, a later cursor has a greater pair."""

START: Place = (0, 0)


def parse(state: Mapping[str, Any], where: str = "state") -> tuple[str, Place]:
    """Return the run id and the place of a cursor. Raises StateError if the dict is not a
    cursor."""
    try:
        run_id, place = str(state["run_id"] or ""), (operator.index(state["seq"]), operator.index(state["groups"]))
    except (KeyError, TypeError) as err:
        raise StateError(f'{where}: {state!r:.80} is not a cursor: want {{"run_id", "seq", "groups"}}, as returned by state_dict and Following.cursor') from err
    if min(place) < 0:
        raise StateError(f"{where}: {state!r:.80} is not a cursor: seq and groups must be ≥ 0")
    return run_id, place


def cursor(run_id: str, place: Place) -> dict[str, Any]:
    """Return the dict that is saved as the cursor for a place."""
    return {"run_id": run_id, "seq": place[0], "groups": place[1]}


def acknowledged(run: str) -> tuple[str, Place]:
    """Return the last acknowledged cursor of a run, or the start of the run."""
    path = os.path.join(run, "ack.json")
    try:
        with open(path, "rb") as f:
            body = json.loads(f.read())
    except (FileNotFoundError, NotADirectoryError):
        return "", START
    except ValueError as err:
        raise CorruptError(f"{path}: not valid JSON: {err}; remove the file, or pass state=") from err
    return parse(body, path)


def belongs(run: str, run_id: str, place: Place, what: str = "the state") -> None:
    """Raise StateError if a cursor is from another run or ahead of the log.

    Call this function before you acknowledge a cursor, because an acknowledgement cannot be
    undone.
    """
    held, last = _held(run), newest(run)
    if run_id and run_id != held:
        holds = f"the folder contains run {held!r}" if held else "the folder contains no run"
        raise StateError(f"{run}: {holds}, but {what} is from run {run_id!r}: pass the folder of that run")
    if place > (last + 1, 0):
        raise StateError(f"{run}: the log ends with entry {last}, but {what} is in commit {place[0]}: the folder is an older copy, or contains another run")


def _held(run: str) -> str:
    """Return the id of the run in a folder, or "" if the run has no id yet."""
    try:
        with open(os.path.join(run, "run.json"), "rb") as f:
            return str(json.loads(f.read())["id"])
    except (OSError, ValueError, KeyError, TypeError):
        first = next(entries(run), None)
        return "" if first is None else str(first.body.get("run_id") or "")


def newest(run: str) -> int:
    """Return the number of the newest log entry, or 0 if there is no entry."""
    try:
        return max((int(n[:20]) for n in os.listdir(os.path.join(run, "_commits")) if n[:20].isdigit()), default=0)
    except OSError:
        return 0


def acknowledge(run: str, run_id: str, place: Place) -> None:
    """Write a cursor into the folder of a run without a running collector.

    A running collector writes the cursor itself. If another process uses the folder, this
    function writes nothing, because the trainer of that process acknowledges groups. Raises
    StateError if the cursor is not from this run.
    """
    belongs(run, run_id, place, "the acknowledged cursor")
    try:
        import fcntl
    except ImportError:
        return
    with contextlib.suppress(OSError), open(os.path.join(run, "lock"), "r+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        had, until = acknowledged(run)
        if had not in ("", run_id) or until >= place:
            return
        path = os.path.join(run, "ack.json")
        with open(f"{path}.tmp", "wb", opener=lambda p, flags: os.open(p, flags, os.stat(lock.fileno()).st_mode & 0o666)) as f:
            f.write(json.dumps(cursor(run_id, place)).encode() + b"\n")
            f.flush()
            os.fsync(f.fileno())
        os.replace(f"{path}.tmp", path)
        folder = os.open(run, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def planned_end(run: str) -> int | None:
    """Return how many outcomes the log must contain for the run to have ended.

    For a streaming run, the number is 0 after the run's report is complete. Before that, it is so
    high that it is never reached. Returns None if run.json does not exist. run.json is always
    replaced as a whole, so a truncated file is damage and raises CorruptError.
    """
    path = store.join(run, "run.json")
    try:
        info: dict[str, Any] = json.loads(store.read(path))
        planned, streamed = int(info["tasks"]["planned"]), info["tasks"].get("stream") is True
        begun = str(info["invocations"][-1]["started_at"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as err:
        raise CorruptError(f"cannot read {path}: {err!r}; restore a copy of the file, or read the run without follow=True") from err
    try:
        report = json.loads(store.read(store.join(run, "report.json")))
        covered = report["coverage"]
        if report["run_id"] == info["id"] and report["state"] == "complete" and instant(report["written_at"]) >= instant(begun):
            return 0 if streamed else min(planned, int(covered["planned"]) - int(covered.get("unstarted", 0)))
    except (OSError, ValueError, KeyError, TypeError):
        pass  # there is no report, or it is unreadable
    return sys.maxsize if streamed else planned


def instant(text: str) -> tuple[str, str]:
    """Convert a UTC time in RFC 3339 format to a sort key. Times can differ in their number of
    fractional digits."""
    whole, _, fraction = text.removesuffix("Z").partition(".")
    return whole, fraction
