"""The entries of a commit log, and the commits in them.

A commit contains the samples that a collector added to the dataset together. Each commit has a
number, seq. The entry of the commit, _commits/<seq>.json, names the samples and their shards. A
merge also has an entry. A merge copies the samples of consecutive small commits into one shard,
in the order of the commits. The files that the merge replaces are moved to replaced/ and deleted
later. The commits keep their numbers and samples. Only their rows move:

    entries   1 2 3 4 5 6 7 8 10 11    9 = a merge of 1 to 8, which replaces their entries
    then      9 10 11
    commits   1 2 3 4 5 6 7 8 10 11    before and after

Samples are always ordered by commit number, and within a commit by their position in the entry. An
entry with a kind is a claim or the end of the log. It has no samples, and no merge replaces it.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from rollout._types import Path
from rollout.errors import SEE_VERIFY, CorruptError, NewerError

VERSION = 1
"""The entry version that this package reads."""
SCHEMA_VERSION = 1
"""The schema version that this package reads."""
LOOKS = 8
"""How many times the log is checked for an entry that seems to be missing, within 0.3 s. An entry
can disappear during a listing because a merge replaces it."""

_NAME = re.compile(r"^\d{20}\.json$")
# Matches the end of an entry. It contains the SHA-256 of all earlier bytes.
_SUM = re.compile(rb',"sha256":"([^"]{64})"}\n\Z')
_VERSION = b'{"version":%d,' % VERSION
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


def _compared(path: str) -> bytes:
    """Read an entry, verify its checksum, and return its bytes."""
    with open(path, "rb") as f:
        body = f.read()
    end = _SUM.search(body, max(0, len(body) - 100))
    # Verify the checksum first, because a damaged version field must not look like another version.
    if not end:
        raise CorruptError(f"{path}: the entry has no checksum at its end{SEE_VERIFY}")
    if hashlib.sha256(memoryview(body)[: end.start()]).hexdigest().encode() != end.group(1):
        raise CorruptError(f"{path}: the checksum of the entry is wrong{SEE_VERIFY}")
    return body


def _decoded(path: str, body: bytes) -> dict[str, Any]:
    """Decode an entry whose checksum was verified."""
    try:
        entry: dict[str, Any] = json.loads(body)
        version, schema = entry["version"], entry["schema_version"]
        newer = version > VERSION or schema > SCHEMA_VERSION
    except (ValueError, KeyError, TypeError, RecursionError) as err:
        raise CorruptError(f"{path}: invalid entry: {err!r}{SEE_VERIFY}") from err
    if newer:
        raise NewerError(f"{path}: written by a newer version of rollout; install that version of rollout-rl")
    if (version, schema) != (VERSION, SCHEMA_VERSION):
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
        self.folder = os.path.join(run_dir, "_commits")
        self.run_id: str | None = None
        self._at = after  # this number and all lower numbers were returned, or are not commits
        self._ranges: dict[int, list[list[int]]] = {}  # the ranges that existing entries replace
        self._last: Entry | None = None  # the last decoded merge, with all its commits

    def next_entry(self) -> Entry | None:
        """Return the next entry with commits that have not yet been returned. The result contains
        only these commits. Returns None at the current end of the log."""
        looks = 0
        while True:
            seq = self._at + 1
            body = self._read(seq)
            if body is None:
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
            if entry.get("kind"):
                continue  # a claim, or the end of the log: it has no samples
            with corrupt_entry(os.path.dirname(self.folder), seq):
                return Entry(entry, _commits(entry))

    def rewind(self, seq: int) -> None:
        """Go back in the log. The next entry starts with the first commit after commit `seq`."""
        self._at, self._last = seq, None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_last": None}

    def merge_of(self, seq: int) -> Entry | None:
        """Return the merge that replaces an entry, with all commits of the merge, or None."""
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
        return os.path.join(self.folder, f"{seq:020d}.json")

    def _read(self, seq: int) -> bytes | None:
        try:
            return _compared(self._path(seq))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _listed(self) -> list[int]:
        """Return the numbers of all existing entries, ascending."""
        try:
            names = os.listdir(self.folder)
        except (FileNotFoundError, NotADirectoryError):
            return []
        there = {int(n[:20]) for n in names if _NAME.match(n)}
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
            with corrupt_entry(os.path.dirname(self.folder), seq):
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
        a merge has replaced it."""
        return os.path.exists(self._path(self._at + 1))


def entries(run_dir: Path, after: int = 0) -> Iterator[Entry]:
    """Yield the entries of a run that have commits after the given number, in commit order."""
    log = Log(run_dir, after)
    return iter(log.next_entry, None)


