"""The text of rows, decoded with the tokenizer of their run."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

ROLES = ("prompt", "assistant", "tool", "user")
"""The roles of the messages, by the values of turn_roles."""

_FILES = {"tokenizer.json": None, "tokenizer.json.zst": "zstd", "tokenizer.json.gz": "gzip"}


def decode(row: Mapping[str, Any], tokenizer: Any = None) -> str:
    """Return the text of a row, with the special tokens of its template.

    An id that the tokenizer does not know has no text. Needs the package tokenizers, unless the
    tokenizer is an object.

    tokenizer: the folder of a model, a file tokenizer.json, the folder of a run, or an object with a
        method decode(ids, skip_special_tokens=...), such as tokenizers.Tokenizer or a tokenizer of
        transformers. None: the tokenizer of the row's run. This is the copy in the run's folder
        or, if there is none, the folder in the run's setting tokens.tokenizer.

    Raises ValueError if no tokenizer is known, and FileNotFoundError if its files are missing.
    """
    return _decode(row, _tokenizer(row, tokenizer), 0, len(row["input_ids"]), special=True)


def messages(row: Mapping[str, Any], tokenizer: Any = None) -> list[dict[str, str]]:
    """Return the conversation of a row; see Row.messages."""
    loaded = _tokenizer(row, tokenizer)
    offsets, roles = row["turn_offsets"].tolist(), row["turn_roles"].tolist()
    return [{"role": ROLES[role], "content": _decode(row, loaded, a, b, special=False)} for role, a, b in zip(roles, offsets, offsets[1:])]


def _decode(row: Mapping[str, Any], tokenizer: Any, begin: int, end: int, special: bool) -> str:
    return str(tokenizer.decode(row["input_ids"][begin:end].tolist(), skip_special_tokens=not special))


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
    at = Path(path)
    if (at / "run.json").is_file():
        at = _of_run(at)
    if at.is_dir():
        found = [at / name for name in _FILES if (at / name).is_file()]
        if not found:
            hint = "; the package tokenizers cannot read tekken.json: pass an object with a method decode" if list(at.glob("tekken.json*")) else ""
            raise FileNotFoundError(f"{at}: the folder has no tokenizer.json{hint}")
        at = found[0]
    with pa.input_stream(str(at), compression=_FILES.get(at.name)) as file:
        return Tokenizer.from_str(file.read().decode("utf-8"))


def _of_run(run: Path) -> Path:
    """Return the folder with the tokenizer of a run."""
    info = json.loads((run / "run.json").read_bytes())
    kept = (info.get("model") or {}).get("files")
    if kept and Path(run, "tokenizer", kept).is_dir():
        return Path(run, "tokenizer", kept)
    named = ((info.get("config") or {}).get("tokens") or {}).get("tokenizer")
    if not named:
        raise ValueError(f"{run}: the run has no copy of its tokenizer, and its settings name none: pass tokenizer=, the folder of the model")
    for folder in (Path(named), run.absolute().parent / named):
        if folder.is_dir():
            return folder
    raise FileNotFoundError(f"{run}: the run has no copy of its tokenizer, and there is no folder {named}: pass tokenizer=, the folder of the model")
