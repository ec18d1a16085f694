"""How far a trainer has come in a run, in the order of the log.

A cursor is a dict {"run_id": str, "seq": S, "groups": N}: all groups that commits before S
completed, and the first N groups that commit S completed. RUN/ack.json contains the last
acknowledged cursor.
"""

from __future__ import annotations

import contextlib
import json
import operator
import os
from collections.abc import Mapping
from typing import Any

from rollout.entries import entries
from rollout.errors import CorruptError, StateError

Place = tuple[int, int]
"""seq and groups of a cursor. Within a run, a later cursor is a greater pair."""

START: Place = (0, 0)


def parse(state: Mapping[str, Any], where: str = "state") -> tuple[str, Place]:
    """Return the run id and the place of a cursor. Raises StateError if it is not a cursor."""
    try:
        run_id, place = str(state["run_id"] or ""), (operator.index(state["seq"]), operator.index(state["groups"]))
    except (KeyError, TypeError) as err:
        raise StateError(f'{where}: {state!r:.80} is not a cursor: want {{"run_id", "seq", "groups"}}, as returned by state_dict and Following.cursor') from err
    if min(place) < 0:
        raise StateError(f"{where}: {state!r:.80} is not a cursor: seq and groups must be ≥ 0")
    return run_id, place


def cursor(run_id: str, place: Place) -> dict[str, Any]:
    """Return the cursor in its saved form."""
    return {"run_id": run_id, "seq": place[0], "groups": place[1]}


def acknowledged(run: str) -> tuple[str, Place]:
    """Return the last acknowledged cursor of a run, or its start."""
    path = os.path.join(run, "ack.json")
    try:
        with open(path, "rb") as f:
            body = json.loads(f.read())
    except (FileNotFoundError, NotADirectoryError):
        return "", START
    except ValueError as err:
        raise CorruptError(f"{path}: cannot be decoded: {err}; remove it, or pass state=") from err
    return parse(body, path)


def belongs(run: str, run_id: str, place: Place, what: str = "the state") -> None:
    """Raise StateError unless a cursor is from the run in the folder and not ahead of its log.

    Call it before the cursor is acknowledged, because that cannot be undone.
    """
    held, last = _held(run), newest(run)
    if run_id and run_id != held:
        holds = f"contains run {held!r}" if held else "contains no run"
        raise StateError(f"{run}: {holds}, {what} is from run {run_id!r}: pass the folder of that run")
    if place > (last + 1, 0):
        raise StateError(f"{run}: its log ends with entry {last}, {what} is in commit {place[0]}: the folder is an older copy, or contains another run")


def _held(run: str) -> str:
    """Return the id of the run in a folder, or "" if it has none yet."""
    try:
        with open(os.path.join(run, "run.json"), "rb") as f:
            return str(json.loads(f.read())["id"])
    except (OSError, ValueError, KeyError, TypeError):
        first = next(entries(run), None)
        return "" if first is None else str(first.body.get("run_id") or "")


def newest(run: str) -> int:
    """Return the number of the newest log entry, or 0."""
    try:
        return max((int(n[:20]) for n in os.listdir(os.path.join(run, "_commits")) if n[:20].isdigit()), default=0)
    except OSError:
        return 0


def acknowledge(run: str, run_id: str, place: Place) -> None:
    """Write a cursor into a run that no process collects into.

    A running collector does this itself. Nothing is written if another process has the folder,
    because its own trainer acknowledges. Raises StateError if the cursor is not from this run.
    """
    belongs(run, run_id, place, "what was acknowledged")
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
