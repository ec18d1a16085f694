"""The scores sets of a run.

`rollout rescore` scores the samples of a finished run again. It writes the scores to a scores set,
RUN/scores/NAME, and does not change the rows. A set has a commit log of its own, and small Parquet
shards with the columns sample_key, reward, reward_details, failed (whether the scorer failed), keep and
keep_reason. A set whose log does not end with a sealed entry is not complete, and is not read.

A reader uses the newest complete set when it opens a run, or the set that the parameter `scores`
names. The name "collected" stands for the rewards in the rows. A sample that the set lacks was
collected later. Its reward is null, so the rewards of two scorers never mix.
"""

from __future__ import annotations

import re
import threading
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rollout._arrays import Ints
from rollout._types import Path
from rollout.errors import SEE_VERIFY, CorruptError
from rollout.runs import _store as store
from rollout.runs.entries import Log, corrupt_entry

COLLECTED = "collected"
"""The name of the rewards in the rows."""
REPLACED = ("reward", "reward_details", "keep", "keep_reason")
"""The columns whose values come from the set."""

_NAME = re.compile(r"0\d{3}|[1-9]\d{3,8}")


class Scores:
    """The scores in one complete set, as arrays. The details are read when they are first used. A
    pickled copy reads the set again."""

    def __init__(self, run_dir: str, name: str) -> None:
        self.run_dir, self.name = run_dir, name
        self._lock = threading.RLock()
        self._loaded = False

    def __getstate__(self) -> tuple[str, str]:
        return self.run_dir, self.name

    def __setstate__(self, state: tuple[str, str]) -> None:
        self.__init__(*state)  # type: ignore[misc]

    def complete(self) -> bool:
        """Read the log. Report whether the set is complete."""
        self._folder = store.join(self.run_dir, "scores", self.name)
        log = Log(self._folder)
        self.shards: list[tuple[str, int, int, str]] = []  # path, bytes, rows and digest
        while (entry := log.next_entry()) is not None:
            with corrupt_entry(self._folder, entry.body.get("seq")):
                for s in entry.body["shards"]:
                    if s["kind"] != "scores":
                        raise ValueError(f"it names a shard of kind {s['kind']!r}")
                    self.shards.append((store.join(self._folder, *s["path"].split("/")), s["bytes"], s["rows"], s["sha256"]))
        self.run_id = log.run_id or ""
        return log.sealed

    def _load(self) -> None:
        with self._lock:
            if self._loaded:
                return
            if not self.complete():
                raise CorruptError(f"{self._folder}: the scores set is not complete{SEE_VERIFY}")
            table = self._read(["sample_key", "reward", "keep", "keep_reason"])
            keys = key_array(table["sample_key"])
            self._order = np.argsort(keys, kind="stable")
            self._keys = keys[self._order]
            if len(keys) > 1 and (self._keys[1:] == self._keys[:-1]).any():
                raise CorruptError(f"{self._folder}: a sample has two scores{SEE_VERIFY}")
            self._table, self._details = table, None
            self._get: dict[str, Any] = {}
            self._loaded = True

    def _read(self, columns: list[str]) -> pa.Table:
        parts = []
        for path, size, rows, sha256 in self.shards:
            try:
                if columns[0] == "sample_key" and (store.size(path), store.digest(path)) != (size, sha256):  # the first read of the file
                    raise CorruptError(f"{path}: the file is not the file that was committed{SEE_VERIFY}")
                with store.parquet(path) as file:
                    table = file.read(columns=columns, use_threads=False)
            except (pa.ArrowException, OSError) as err:
                raise CorruptError(f"cannot read {path}: {err}{SEE_VERIFY}") from err
            if table.num_rows != rows:
                raise CorruptError(f"{path}: the file has {table.num_rows} rows, but the commit log lists {rows}{SEE_VERIFY}")
            parts.append(table.replace_schema_metadata(None))
        if not parts:
            kinds = {"reward": pa.float64(), "keep": pa.bool_()}
            return pa.table({name: pa.array([], kinds.get(name, pa.string())) for name in columns})
        return pa.concat_tables(parts).combine_chunks()

    @property
    def decides(self) -> bool:
        """Whether the set has a value other than null in the column keep."""
        self._load()
        return bool(self._table["keep"].null_count < self._table.num_rows)

    def index(self, keys: Any) -> Ints:
        """Return the number of the score for each key in a column, or -1 if the set lacks the sample."""
        self._load()
        wanted = key_array(keys)
        if not len(self._keys):
            return np.full(len(wanted), -1, np.int64)
        at = np.minimum(np.searchsorted(self._keys, wanted), len(self._keys) - 1)
        out: Ints = np.where(self._keys[at] == wanted, self._order[at], -1).astype(np.int64)
        return out

    def value(self, name: str, index: int) -> Any:
        """Return a value of a score."""
        self._load()
        get = self._get.get(name)
        if get is None:
            column = self._read([name])[name] if name == "reward_details" else self._table[name]
            get = self._get[name] = one_array(column)
        return get[index].as_py()

    def column(self, name: str, index: Ints, had: Any) -> pa.Array:
        """Return a column of rows with the scores of the given numbers. `had` has the values in the rows."""
        import pyarrow.compute as pc

        self._load()
        column = self._read([name])[name] if name == "reward_details" else self._table[name]
        at = pa.array(np.maximum(index, 0), mask=index < 0)
        new = one_array(column).take(at)
        if name in ("reward", "reward_details"):
            return new
        return pc.if_else(pa.array(index < 0), one_array(had), new)

    def replaced(self, batch: Any, index: Ints) -> Any:
        """Return a batch of rows, or a table, in which the columns of the scores are replaced."""
        names = batch.schema.names
        columns = [self.column(n, index, batch[n]) if n in REPLACED else batch[n] for n in names]
        return type(batch).from_arrays(columns, names=names)


def one_array(column: Any) -> pa.Array:
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def key_array(column: Any) -> npt.NDArray[np.bytes_]:
    """Return a column of sample keys as an array of bytes."""
    values = one_array(column).cast(pa.binary()).to_pylist()
    return np.asarray(values, dtype=np.bytes_) if values else np.empty(0, dtype="S1")


def names(run_dir: Path) -> list[str]:
    """Return the names of a run's scores sets, oldest first, including those that are not complete."""
    found = {name.split("/")[0] for name in store.names(store.join(run_dir, "scores"))}
    return sorted((name for name in found if _NAME.fullmatch(name)), key=lambda name: (len(name), name))


def scores_name(name: Any) -> None:
    """Raise unless the argument can be the name of a scores set."""
    if name is not None and not isinstance(name, str):
        raise TypeError(f"scores={name!r:.80}: must be the name of a scores set, or None")


def open_scores(run_dir: str, name: str | None) -> Scores | None:
    """Return the named scores set of a run, or the newest complete set. None: the rewards in the rows count.

    Raises ValueError if there is no complete set with the name, and CorruptError if the set is damaged.
    """
    if name == COLLECTED:
        return None
    found = names(run_dir)
    for one in reversed(found):
        if name in (None, one) and (scores := Scores(run_dir, one)).complete():
            return scores
    if name is not None:
        have = ", ".join([COLLECTED, *(other for other in found if other != name)])
        raise ValueError(f"scores={name!r}: {run_dir} has no complete scores set with this name (it has {have})")
    return None


_last: Scores | None = None


def open_again(run_dir: str, name: str | None) -> Scores | None:
    """Like open_scores, but for a function that is called for each shard: return the same object as the last
    call if that was the same set, so that its scores are read only once."""
    global _last
    found, last = open_scores(run_dir, name), _last
    if found is not None and last is not None and (last.run_dir, last.name, last.shards) == (found.run_dir, found.name, found.shards):
        return last
    _last = found
    return found


class ScoredSource:
    """The source of one row whose score comes from a set."""

    __slots__ = ("_index", "_scores", "_source")

    def __init__(self, source: Any, scores: Scores, index: int) -> None:
        self._source, self._scores, self._index = source, scores, index

    def value(self, name: str, number: int) -> Any:
        if name not in REPLACED or self._index < 0 and name in ("keep", "keep_reason"):
            return self._source.value(name, number)
        return None if self._index < 0 else self._scores.value(name, self._index)
