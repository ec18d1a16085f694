"""The text of rows, decoded with the tokenizer of their run."""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from rollout._conversation import Decoder
from rollout._stored import stored
from rollout.errors import CorruptError

_FILES = {"tokenizer.json": None, "tokenizer.json.zst": "zstd", "tokenizer.json.gz": "gzip"}


class _Files(Protocol):
    """The files of a run, in a folder or in a bucket."""

    def remote(self, path: Any) -> bool: ...
    def join(self, folder: Any, *names: str) -> str: ...
    def read(self, path: str) -> bytes: ...
    def tree(self, folder: str) -> list[str]: ...


files: _Files = None  # type: ignore[assignment]
"""The module rollout.runs._store, which sets this: it is above this module."""


def decode(row: Mapping[str, Any], tokenizer: Any = None) -> str:
    """Return the text of a row, with the special tokens of its template.

    An id that the tokenizer does not know has no text. Needs the package tokenizers, unless the
    tokenizer is an object.

    tokenizer: the folder of a model, a file tokenizer.json, the folder or the URL of a run, or an
        object with a method decode(ids, skip_special_tokens=...), such as tokenizers.Tokenizer or
        a tokenizer of transformers. None: the tokenizer of the row's run, from the copy in the run's
        folder or bucket.

    Raises ValueError if the row does not know its run, FileNotFoundError if there is no tokenizer,
    and CorruptError if the copy in the run has changed.
    """
    return str(_tokenizer(row, tokenizer).decode(row["input_ids"].tolist(), skip_special_tokens=False))


def messages(row: Mapping[str, Any], tokenizer: Any = None) -> list[dict[str, Any]]:
    """Return the conversation of a row; see Row.messages."""
    column = row.get("messages") if tokenizer is None and not row.get("segment_index") else None
    kept = stored(column) if column else None
    try:
        decoder = Decoder(_tokenizer(row, tokenizer))
    except (ValueError, FileNotFoundError):  # no tokenizer
        if kept is None:
            raise
        return kept
    return decoder.messages(row) if decoder.form or kept is None else kept


def _tokenizer(row: Mapping[str, Any], given: Any) -> Any:
    if given is None:
        given = getattr(row, "run", None)
        if given is None:
            raise ValueError("the row does not know its run: pass tokenizer=, such as group.run or the folder of the model")
    if isinstance(given, (str, os.PathLike)):
        return _load(os.fspath(given))
    if not callable(getattr(given, "decode", None)):
        raise TypeError(f"tokenizer={given!r:.60}: must be a path, or an object with a method decode")
    return given


@functools.lru_cache(maxsize=4)
def _load(path: str) -> Any:
    """Return the tokenizer in a file, in the folder of a model or of a run."""
    try:
        from tokenizers import Tokenizer
    except ImportError as err:
        raise ImportError("rollout.decode needs the package tokenizers: pip install tokenizers") from err
    if files.remote(path) or any(Path(path, name).is_file() for name in ("run.json", "fleet.json")):
        found = _of_run(path)
    elif Path(path).is_dir():
        found = _of_folder(Path(path))
    else:
        found = Path(path).name, Path(path).read_bytes()
    return Tokenizer.from_str(_unpacked(*found, _FILES.get(found[0])).decode("utf-8"))


def _of_folder(folder: Path) -> tuple[str, bytes]:
    """Return the name and the content of the file with the tokenizer of a model."""
    for name in _FILES:
        if (folder / name).is_file():
            return name, (folder / name).read_bytes()
    hint = "; the package tokenizers cannot read tekken.json: pass an object with a method decode" if list(folder.glob("tekken.json*")) else ""
    raise FileNotFoundError(f"{folder}: the folder has no tokenizer.json{hint}")


def _of_run(run: str) -> tuple[str, bytes]:
    """Return the name and the content of the file with the tokenizer of a run."""
    shown = run.partition("?")[0]
    try:
        info = json.loads(files.read(files.join(run, "run.json")))
    except FileNotFoundError:
        raise FileNotFoundError(f"{shown}: there is no run.json, so there is no copy of the tokenizer: pass tokenizer=, the folder of the model") from None
    copy = (info.get("model") or {}).get("files")
    names = files.tree(files.join(run, "tokenizer", copy)) if copy else []
    if copy and names:
        return _of_copy(run, copy, names)
    problem = "the run's copy of its tokenizer is missing: restore it, or pass" if copy else "the run has no copy of its tokenizer: pass"
    raise FileNotFoundError(f"{shown}: {problem} tokenizer=, the folder of the model")


def _of_copy(run: str, copy: str, names: list[str]) -> tuple[str, bytes]:
    """Return the name and the content of the file with the tokenizer, from a run's own copy. All files of the copy must be
    as the run wrote them: see Files.Digest in cmd/rollout/internal/model."""
    place = files.join(run, "tokenizer", copy)
    content = {}
    try:
        for name, body in _read(place, names):
            content[name] = body
        found = hashlib.sha256()
        for name in sorted(content, key=str.encode):
            found.update(f"{name} {len(content[name])}\n".encode() + content[name])
        if len(content) != len(names) or found.hexdigest() != copy:
            raise OSError(f"the files have sha256 {found.hexdigest():.12}, want {copy:.12}")
    except OSError as err:
        shown = place.partition("?")[0]
        hint = "restore the copy; or remove it, and pass tokenizer=, the folder of the model"
        raise CorruptError(f"{shown}: the run's copy of its tokenizer has changed: {err}; {hint}") from err
    for name in ("tokenizer.json", "tokenizer.json.gz"):
        if name in content:
            return name, content[name]
    hint = "; the package tokenizers cannot read tekken.json: pass an object with a method decode" if "tekken.json" in content else ""
    raise FileNotFoundError(f"{place.partition('?')[0]}: the folder has no tokenizer.json{hint}")


def _read(place: str, names: list[str]) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a copy as they were before rollout compressed them."""
    for name in names:
        body = files.read(files.join(place, *name.split("/")))
        packed = name.endswith(".zst") and "/" not in name
        yield (name.removesuffix(".zst"), _unpacked(name, body, "zstd")) if packed else (name, body)


def _unpacked(name: str, body: bytes, compression: str | None) -> bytes:
    if compression is None:
        return body
    with pa.input_stream(pa.BufferReader(body), compression=compression) as file:
        return bytes(file.read())
