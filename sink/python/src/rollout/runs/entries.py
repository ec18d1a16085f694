"""The entries of a commit log, and the commits in them.

A commit contains the samples that a collector added to the dataset together. Each commit has a
number, seq. The entry of the commit, _commits/<seq>.json, names the samples and their shards. A
merge also has an entry. A merge copies the samples of consecutive small commits into one shard,
in the order of the commits. The files that the merge replaces are moved to replaced/ and deleted
later. The commits keep their numbers and samples. Only their rows move:

    entries   1 2 3 4 5 6 7 8 10 11    9 = a merge of 1 to 8, which replaces their entries
    then      9 10 11
    commits   1 2 3 4 5 6 7 8 10 11    before and after

Samples are always ordered by commit number, and within a commit by their position in the entry.

A log in a bucket, or in a partition of a fleet, has claims. No entry and no shard of such a log is
moved, and shards of replaced entries are deleted only after a day. An entry with a kind is a claim or
the end of the log. It has no samples, and no merge replaces it. The checkpoints with the highest
epochs are copies of entries:

    _checkpoints/<epoch>.log.zst    {"version":1,"to":N,…}, and the entries up to N that no merge has
                                    replaced, in the order of their commits
    _checkpoints/<epoch>.tail.zst   the entries after N, or the first of them

With both, a log of any length takes about ten requests. Without them, it takes two per entry. A
checkpoint that is damaged or incomplete is ignored, and so are checkpoints whose last entry does
not exist.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from rollout._types import Path
from rollout.errors import SEE_VERIFY, CorruptError, NewerError
from rollout.runs import _store as store

VERSION = 1
"""The entry version that this package reads."""
LOOKS = 8
"""How many times the log is checked for an entry that seems to be missing, within 0.3 s. An entry
can disappear during a listing because a merge replaces it."""
AHEAD = 16
"""The maximum number of entries of a bucket that are read at the same time."""
BEHIND = 32
"""After this number of entries in a row, the checkpoints are read again."""

_NAME = re.compile(r"^\d{20}\.json$")
_VERSION = b'{"version":%d,' % VERSION
_SEQ = re.compile(_VERSION + rb'"seq":(\d+),')
_REPLACES = b'"replaces":'  # only merges have it; no text in an entry contains these bytes, because quotes in text are escaped


class Commit(NamedTuple):
    """A commit, and the range of its samples in the entry that contains them."""

    seq: int
    begin: int
    """The index in the entry of the commit's first sample."""
    end: int
    """The index after the commit's last sample."""
    tokens: int
    """The number of tokens in the commit's rows."""


@dataclass(frozen=True)
class Entry:
    """A valid entry, reduced to the commits that were requested."""

    body: dict[str, Any]
    commits: list[Commit]
    """The requested commits, in the order of seq. Their samples are consecutive in the entry."""

    @property
    def seq(self) -> int:
        """The number of the entry. A merge has its own number, which no commit has."""
        return int(self.body["seq"])

    @property
    def merge(self) -> bool:
        """Whether the entry is a merge. The rows of a merge were in other shards before."""
        return "merged" in self.body

    @property
    def samples(self) -> int:
        """The number of samples in the entry, over all commits."""
        return len(self.body["samples"] or [])

    def until(self, seq: int | None) -> Entry:
        """Return the entry with only the commits whose number is at most `seq`."""
        return self if seq is None else Entry(self.body, [c for c in self.commits if c.seq <= seq])

    def before(self, sample: int, what: str = "rows") -> int:
        """Return the total number of rows (or failures) of the samples before the given index in
        the entry."""
        return sum(s[what] for s in (self.body["samples"] or [])[:sample])


class corrupt_entry:
    """Turns errors in an entry into a CorruptError that names the entry."""

    def __init__(self, where: Path, seq: object) -> None:
        self._where, self._seq = os.fspath(where), seq

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, err: BaseException | None, trace: object) -> None:
        if isinstance(err, (KeyError, TypeError, AttributeError, IndexError, ValueError, OverflowError)):
            raise CorruptError(f"{self._where}: entry {self._seq} of the commit log cannot be read: {err!r}{SEE_VERIFY}") from err


def _decoded(path: str, body: bytes) -> dict[str, Any]:
    """Decode an entry whose checksum was verified."""
    try:
        entry: dict[str, Any] = json.loads(body)
        version, schema = entry["version"], entry["schema_version"]
        newer = version > VERSION or schema > store.SCHEMA_VERSION
    except (ValueError, KeyError, TypeError, RecursionError) as err:
        raise CorruptError(f"{path}: invalid entry: {err!r}{SEE_VERIFY}") from err
    if newer:
        raise NewerError(f"{path}: written by a newer version of rollout; install that version of rollout-rl")
    if (version, schema) != (VERSION, store.SCHEMA_VERSION):
        raise CorruptError(f"{path}: commit version {version}, schema version {schema}: both must be 1{SEE_VERIFY}")
    return entry


def _commits(entry: dict[str, Any]) -> list[Commit]:
    n = len(entry["samples"] or [])
    if "merged" not in entry and "replaces" not in entry:
        return [Commit(entry["seq"], 0, n, sum(s["tokens"]["total"] for s in entry["shards"] or [] if s["kind"] == "data"))]
    last = 0
    for first, end in entry["replaces"]:
        if not last < first <= end < entry["seq"]:
            raise ValueError(f"it replaces entries {first} to {end} after entry {last}: the ranges must be in ascending order and end before the entry")
        last = end
    out: list[Commit] = []
    begin, last = 0, 0
    for m in entry["merged"]:
        if m["samples"] < 1 or m["seq"] <= last or not _holds(entry["replaces"], m["seq"]):
            raise ValueError(
                f"{m['samples']} samples of commit {m['seq']} follow commit {last}: "
                "a merge must list commits with samples, in ascending order, and replace them"
            )
        begin, last = begin + m["samples"], m["seq"]
        out.append(Commit(last, begin - m["samples"], begin, m["tokens"]))
    if begin != n or not out:
        raise ValueError(f"its commits have {begin} samples, but the entry has {n}")
    return out


def _lines(body: bytes) -> Iterator[bytes]:
    """Yield the lines of a checkpoint."""
    if body:
        with pa.CompressedInputStream(pa.BufferReader(body), "zstd") as stream:
            yield from io.BufferedReader(stream)


def _contents(log: bytes) -> tuple[int, dict[int, list[list[int]]]]:
    """Return the number of the last entry in a log checkpoint, and the ranges that each of its entries replaces. The
    number is 0 if the checkpoint is damaged, or if it lacks entries."""
    ranges: dict[int, list[list[int]]] = {}
    try:
        lines = _lines(log)
        head = json.loads(next(lines, b""))
        for line in lines:
            ranges[_number(line)] = _ranges("", store.compared("", line))
        at = 0
        for first, last in sorted([*([seq, seq] for seq in ranges), *itertools.chain(*ranges.values())]):
            if first > at + 1:
                return 0, {}
            at = max(at, last)
        if head["version"] == 1 and head["to"] == at:
            return at, ranges
    except (OSError, ValueError, KeyError, TypeError, CorruptError):
        pass
    return 0, {}


def _number(line: bytes) -> int:
    """Return the number of an entry, without decoding it."""
    found = _SEQ.match(line)
    if found is None:
        raise ValueError("not an entry of this version")
    return int(found[1])


def _ranges(path: str, body: bytes) -> list[list[int]]:
    """Return the ranges of entries that a verified entry replaces, without decoding its samples.

    The list is empty unless the entry is a merge.
    """
    at = body.find(_REPLACES)
    if body.startswith(_VERSION):
        if at < 0:
            return []
        try:
            ranges: list[list[int]] = json.loads(body[at + len(_REPLACES) : body.find(b"]]", at) + 2])
            if all(isinstance(n, int) for n in itertools.chain(*ranges)) and all(len(r) == 2 for r in ranges):
                return ranges
        except (ValueError, TypeError):
            pass  # decoding everything reports the error
    entry = _decoded(path, body)
    with corrupt_entry(path, entry.get("seq")):
        _commits(entry)
        return list(entry.get("replaces") or [])
    raise AssertionError  # corrupt_entry raises


def _holds(ranges: list[list[int]], seq: int) -> bool:
    return any(first <= seq <= last for first, last in ranges)


class Log:
    """Reads the log of a run, commit by commit, up to its current end.

    next_entry never returns a commit twice, even if a merge has moved the commit. Not
    thread-safe.
    """

    def __init__(self, run_dir: Path, after: int = 0) -> None:
        self.folder = store.join(run_dir, "_commits")
        self.run_id: str | None = None
        self.claimed = False
        """Whether the log has a claim, so that no entry is ever missing and a sealed entry ends the log."""
        self.sealed = False
        """Whether the end of the log has been read. No commit can follow."""
        self._at = after  # this number and all lower numbers were returned, or are not commits
        self._ranges: dict[int, list[list[int]]] = {}  # the ranges that existing entries replace
        self._last: Entry | None = None  # the last decoded merge, with all its commits
        self._stored: Iterator[Entry] = iter(())  # the remaining entries of the checkpoint
        self._ahead: dict[int, bytes | None] = {}  # entries that were read before they are needed
        self._streak = 0 if after else BEHIND  # the number of entries read in a row

    def next_entry(self) -> Entry | None:
        """Return the next entry with commits that have not yet been returned. The result contains
        only these commits. Returns None at the current end of the log."""
        looks = 0
        if self._streak >= BEHIND:
            self._streak, self._stored = 0, self._checkpoint()
        if (stored := next(self._stored, None)) is not None:
            return stored
        while True:
            seq = self._at + 1
            body = self._next(seq)
            if body is None:
                if self.claimed:
                    return None
                there = self._listed()
                if seq not in there:
                    if not there or there[-1] < seq:
                        self._last = None
                        return None
                    found = self._merged(seq, there)
                    if found is not None:
                        return found
                looks += 1
                if looks >= LOOKS:
                    raise CorruptError(f"{self.folder}: entry {seq} is missing{SEE_VERIFY}")
                time.sleep(0.001 * (1 << looks) if looks > 2 else 0)
                continue
            looks, self._last = 0, None
            self._at = seq
            if body.startswith(_VERSION) and _REPLACES in body:
                continue  # the entry has commits with lower numbers, which were already returned
            path = self._path(seq)
            entry = self._checked(seq, _decoded(path, body))
            if self._marks(path, entry):
                continue
            with corrupt_entry(store.split(self.folder)[0], seq):
                return Entry(entry, _commits(entry))

    def rewind(self, seq: int) -> None:
        """Go back in the log. The next entry starts with the first commit after commit `seq`."""
        self._at, self._last, self.sealed = seq, None, False
        self._stored, self._ahead = iter(()), {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_last": None, "_stored": iter(()), "_ahead": {}}

    def _marks(self, path: str, entry: dict[str, Any]) -> bool:
        """Report whether an entry is a claim or the end of the log, and take note of it."""
        kind = entry.get("kind")
        if kind and (kind not in ("claim", "sealed") or entry.get("samples") or entry.get("shards")):
            raise CorruptError(f"{path}: an entry of kind {kind!r} must be claim or sealed, without samples and shards{SEE_VERIFY}")
        self.claimed |= "claim" in (kind, *entry)  # a later entry has the number of its claim
        self.sealed |= kind == "sealed"
        return bool(kind)

    def _next(self, seq: int) -> bytes | None:
        """Like _read. If a bucket has many new entries, read several of them at the same time."""
        if self.sealed:
            return None
        if seq not in self._ahead:
            several = range(seq, seq + (max(1, min(AHEAD, self._streak)) if store.remote(self.folder) else 1))
            self._ahead = dict(zip(several, store.each(self.folder, self._read, several)))
            self._streak += len(several)
        body = self._ahead.pop(seq)
        if body is None:
            self._streak, self._ahead = 0, {}
        return body

    def _checkpoint(self) -> Iterator[Entry]:
        """Yield the entries of the checkpoint that have commits after the last returned commit."""
        to, body, _ = self._checkpoints()
        self.claimed |= to > 0
        for line in itertools.islice(_lines(body), 1, None):
            entry = _decoded(self.folder, line)
            entry = self._checked(entry["seq"], entry)
            path = self._path(entry["seq"])
            with corrupt_entry(store.split(self.folder)[0], entry["seq"]):
                commits = [] if self._marks(path, entry) else [c for c in _commits(entry) if c.seq > self._at]
            if commits:
                self._at = commits[-1].seq
                yield Entry(entry, commits)
        self._at = max(self._at, to)

    def _checkpoints(self) -> tuple[int, bytes, dict[int, list[list[int]]]]:
        """Read the newest checkpoints. Return the number of the last entry in the log checkpoint, its bytes, and the
        ranges that its entries replace. Without a valid log checkpoint, the number is 0. Keep the entries of the tail."""
        folder = store.join(store.split(self.folder)[0], "_checkpoints")
        names = sorted(store.names(folder))
        log, tail = (self._newest(folder, [n for n in names if n.endswith(suffix)]) for suffix in (".log.zst", ".tail.zst"))
        ahead: dict[int, bytes] = {}
        with contextlib.suppress(OSError, ValueError, CorruptError):  # the entries themselves are read instead
            for line in _lines(tail):
                ahead[_number(line)] = store.compared("", line)
        to, ranges = _contents(log)
        # Without its last entry, a checkpoint proves nothing: someone can have deleted the log.
        if (last := max([to, *ahead])) and store.exists(self._path(last)):
            self._ahead |= ahead
            return to, log if to else b"", ranges
        return 0, b"", {}

    @staticmethod
    def _newest(folder: str, names: list[str]) -> bytes:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, IndexError):
            return store.read(store.join(folder, names[-1]))
        return b""

    def merge_of(self, seq: int) -> Entry | None:
        """Return the merge that replaces an entry, with all commits of the merge, or None."""
        to, _, ranges = self._checkpoints()
        self._ranges |= {number: ranges.get(number, []) for number in range(1, to + 1)}
        for look in range(LOOKS):
            there = self._listed()
            for merge in reversed(there):
                if _holds(self._replaces(merge), seq) and (found := self._whole(merge)) is not None:
                    return found
            if self._listed() == there:
                return None
            time.sleep(0.001 * (1 << look))  # a merge replaced entries during the look
        return None

    def _path(self, seq: int) -> str:
        return store.join(self.folder, f"{seq:020d}.json")

    def _read(self, seq: int) -> bytes | None:
        path = self._path(seq)
        try:
            return self._ahead.get(seq) or store.compared(path, store.read(path))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _listed(self) -> list[int]:
        """Return the numbers of all existing entries, ascending."""
        there = {int(n[:20]) for n in store.names(self.folder) if _NAME.match(n)}
        self._ranges = {seq: ranges for seq, ranges in self._ranges.items() if seq in there}
        return sorted(there)

    def _replaces(self, seq: int) -> list[list[int]]:
        """Return the ranges of entries that an entry replaces. The list is empty unless the entry
        is a merge."""
        if seq not in self._ranges:
            body = self._read(seq)
            if body is None:
                return []
            self._ranges[seq] = _ranges(self._path(seq), body)
        return self._ranges[seq]

    def _whole(self, seq: int) -> Entry | None:
        """Return an entry with all its commits, or None if the entry no longer exists."""
        if self._last is None or self._last.seq != seq:
            body = self._read(seq)
            if body is None:
                return None
            entry = self._checked(seq, _decoded(self._path(seq), body))
            with corrupt_entry(store.split(self.folder)[0], seq):
                self._last = Entry(entry, _commits(entry))
        return self._last

    def _merged(self, seq: int, there: list[int]) -> Entry | None:
        """Return the merge that replaces an entry, without the merge's commits before this entry.
        Return None if there is no such merge."""
        for merge in (s for s in reversed(there) if s > seq):
            for first, last in self._replaces(merge):
                if not first <= seq <= last:
                    continue
                whole = self._whole(merge)
                if whole is None:
                    return None
                self._at = last
                commits = [c for c in whole.commits if seq <= c.seq <= last]
                # If no commit is left, they were already returned from a merge that this merge
                # replaced.
                return Entry(whole.body, commits) if commits else self.next_entry()
        return None

    def _checked(self, seq: int, entry: dict[str, Any]) -> dict[str, Any]:
        path = self._path(seq)
        if entry.get("seq") != seq:
            raise CorruptError(f"{path}: the entry has number {entry.get('seq')}, but the file name has number {seq}{SEE_VERIFY}")
        self.run_id = self.run_id or entry.get("run_id")
        if entry.get("run_id") != self.run_id:
            raise CorruptError(f"{path}: the entry is from run {entry.get('run_id')!r}, but the log is from run {self.run_id!r}{SEE_VERIFY}")
        return entry

    def waiting(self) -> bool:
        """Report whether the next entry exists. This check is cheap, but it can miss the entry if
        a merge has replaced it. In a bucket, the check is not cheap and always returns False."""
        return not store.remote(self.folder) and os.path.exists(self._path(self._at + 1))


def entries(run_dir: Path, after: int = 0) -> Iterator[Entry]:
    """Yield the entries of a run that have commits after the given number, in commit order."""
    log = Log(run_dir, after)
    return iter(log.next_entry, None)


