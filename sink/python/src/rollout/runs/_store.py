"""The files of a run: in a folder, or in a bucket at a URL such as s3://bucket/run1. Only this module
knows the difference.

The path of an object is a URL too. It has the parameters of the run's URL, so it is complete. pyarrow
finds the credentials; a URL cannot contain them. An object is read by range and never changes. Opening
it takes a HEAD request, which also returns its size. Each range takes a GET request. A forked process
opens its own connections.

pyarrow repeats a failed request for some seconds. After that, StoreError is raised.
"""

from __future__ import annotations

import functools
import hashlib
import json
import mmap
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from rollout import _text
from rollout._types import Path
from rollout.errors import SEE_VERIFY, CorruptError, FolderError, NewerError, StoreError

S = TypeVar("S")
T = TypeVar("T")

POOL = 8
"""The maximum number of requests at the same time."""
HANDLES = 4096
"""How many open objects a process remembers. An open object uses about 1 KB and no connection."""
SCHEMA_VERSION = 1
"""The version of the rows that this package reads."""
COPIES = 256
"""How many Arrow shards of buckets a process keeps as unnamed local files."""
CHUNK = 8 << 20
"""The number of bytes in a request for a whole object."""

# The program accepts the same schemes: see IsURL in sink/store/location.go.
_URL = re.compile(r"[a-z][a-z0-9+.-]+:/|(s3|gs|gcs|az|azure|abfss?|wasbs?):", re.IGNORECASE)

# Match the end of an entry, and of fleet.json. It contains the SHA-256 of all earlier bytes.
_ENTRY_SUM = re.compile(rb',"sha256":"([^"]{64})"}\n\Z')
_FLEET_SUM = re.compile(rb',\n  "sha256": "([^"]{64})"\n}\n\Z')


def remote(path: Path) -> bool:
    """Report whether a path is a URL. Without its two slashes it counts too, and every request for it raises ValueError:
    pathlib.Path turns s3://bucket into s3:/bucket."""
    text = os.fspath(path)
    return "://" in text or _URL.match(text) is not None


def local(name: str, path: Path, hint: str) -> None:
    """Raise ValueError if an argument is a URL. The hint says what to pass instead."""
    if remote(path):  # do not show it, because it can contain credentials
        raise ValueError(f"{name}: a URL is not supported: {hint}")


def join(folder: Path, *names: str) -> str:
    """Return the path of a file in a folder."""
    if not remote(folder):
        return os.path.join(folder, *names)
    place, mark, parameters = os.fspath(folder).partition("?")
    return "/".join((place.rstrip("/"), *names)) + mark + parameters


def split(path: str) -> tuple[str, str]:
    """Return the folder and the name of a file."""
    if not remote(path):
        return os.path.split(path)
    place, mark, parameters = path.partition("?")
    folder, _, name = place.rpartition("/")
    return folder + mark + parameters, name


def each(path: Path, call: Callable[[S], T], items: Iterable[S]) -> Iterator[T]:
    """Yield the result of a call for each item, in order. For a bucket, make up to POOL calls at the same time."""
    if not remote(path):
        yield from map(call, items)
        return
    with ThreadPoolExecutor(POOL) as pool:
        yield from pool.map(call, items)


@functools.lru_cache(16)
def _system(process: int, base: str) -> Any:
    """Return the file system of a bucket. The connections of another process cannot be used."""
    from pyarrow.fs import FileSystem  # takes memory, and only buckets need it

    try:
        return FileSystem.from_uri(base)[0]
    except pa.ArrowInvalid as err:
        raise ValueError(f"{base.partition('?')[0]}: {err}; use s3://bucket/prefix?region=…&endpoint_override=…") from None
    except OSError as err:
        raise StoreError(f"{base.partition('?')[0]}: {err}") from err


def _object(path: str) -> tuple[Any, str]:
    """Return the file system of an object, and the object's path in it."""
    url = urlsplit(path)
    if not path[len(url.scheme) :].startswith("://"):
        raise ValueError(f"{url.scheme}: the URL has no ://; pass s3://bucket/prefix as a string, because pathlib.Path removes a slash")
    if url.scheme != "s3" or not url.netloc:
        raise ValueError(f"{url.scheme}://: not supported: use a folder or s3://bucket/prefix")
    if "@" in url.netloc:
        raise ValueError("s3://: the URL contains credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or use ~/.aws/credentials")
    base = f"s3://{url.netloc}" + (f"?{url.query}" if url.query else "")
    return _system(os.getpid(), base), url.netloc + unquote(url.path)


def failed(path: str, err: BaseException | None, opened: bool = True) -> None:
    """If the error comes from a request to a bucket, raise StoreError. If the file was opened and is missing now, raise
    FileNotFoundError.

    pyarrow reports missing objects, failed requests and damaged files with the same class.
    """
    if isinstance(err, OSError) and not isinstance(err, FileNotFoundError) and "AWS Error" in str(err):
        if opened:
            _open(path)
        if "NO_SUCH_BUCKET" in str(err):
            raise StoreError(f"{path}: the bucket does not exist: create it, or correct the URL") from err
        raise StoreError(f"{path}: {str(err).rstrip('. ')}; check the store, the network and the credentials") from err


class requests:
    """Calls failed with the error of a block."""

    def __init__(self, path: str, opened: bool = True) -> None:
        self._path, self._opened = path, opened

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, err: BaseException | None, trace: object) -> None:
        failed(self._path, err, self._opened)


def _open(path: str) -> Any:
    system, key = _object(path)
    with requests(path, opened=False):
        return system.open_input_file(key)


@functools.lru_cache(HANDLES)
def _handle(process: int, path: str) -> Any:
    """Return an open object, which is safe for use by several threads."""
    return _open(path)


def exists(path: str) -> bool:
    """Report whether a file exists. One request."""
    if not remote(path):
        return os.path.exists(path)
    try:
        _open(path)
    except FileNotFoundError:
        return False
    return True


def read(path: str) -> bytes:
    """Return the content of a small file. Two requests. Raises FileNotFoundError if there is no such file."""
    if not remote(path):
        with open(path, "rb") as f:
            return f.read()
    file = _open(path)
    with requests(path):
        return bytes(file.read_at(file.size(), 0))


def names(folder: str) -> list[str]:
    """Return the names of the files in a folder. The list is empty if the folder does not exist. One request per 1,000
    files. Raises StoreError if the bucket does not exist; for a single object, exists returns False in this case."""
    if not remote(folder):
        try:
            return os.listdir(folder)
        except (FileNotFoundError, NotADirectoryError):
            return []
    from pyarrow.fs import FileSelector

    system, key = _object(folder)
    try:
        with requests(folder, opened=False):
            return [info.base_name for info in system.get_file_info(FileSelector(key))]
    except FileNotFoundError:
        return []


def tree(folder: str) -> list[str]:
    """Return the names of all files in a folder and in its folders, with slashes. The list is empty if the folder does
    not exist."""
    if not remote(folder):
        return [os.path.relpath(os.path.join(at, name), folder).replace(os.sep, "/") for at, _, found in os.walk(folder) for name in found]
    from pyarrow.fs import FileSelector

    system, key = _object(folder)
    with requests(folder, opened=False):
        found = system.get_file_info(FileSelector(key, allow_not_found=True, recursive=True))
    return [info.path[len(key) + 1 :] for info in found if info.is_file]


def size(path: str) -> int:
    """Return the size of a file in bytes."""
    return int(_handle(os.getpid(), path).size()) if remote(path) else os.path.getsize(path)


def digest(path: str) -> str:
    """Read a whole file, and return its SHA-256 in lower-case hex."""
    sha256 = hashlib.sha256()
    if remote(path):
        for piece in _pieces(path):
            sha256.update(piece)
        return sha256.hexdigest()
    block = memoryview(bytearray(min(1 << 18, size(path) + 1)))  # fits in the CPU cache
    with open(path, "rb", buffering=0) as f:
        while n := f.readinto(block):
            sha256.update(block[:n])
    return sha256.hexdigest()


def _pieces(path: str) -> Iterator[bytes]:
    file = _handle(os.getpid(), path)
    for at in range(0, file.size(), CHUNK):
        with requests(path):
            yield file.read_at(CHUNK, at)


def parquet(path: str, metadata: Any = None) -> pq.ParquetFile:
    """Open a Parquet file. In a bucket, the ranges of a row group are requested together, and the checksum of each
    page is verified."""
    if not remote(path):
        return pq.ParquetFile(path, metadata=metadata)
    return pq.ParquetFile(_handle(os.getpid(), path), metadata=metadata, pre_buffer=True, page_checksum_verification=True)


@functools.lru_cache(COPIES)
def copied(path: str, sha256: str) -> mmap.mmap:
    """Copy an object to an unnamed local file, verify the copy, and map it. Forked processes share the copy."""
    found = hashlib.sha256()
    with tempfile.TemporaryFile() as f:
        for piece in _pieces(path):
            found.update(piece)
            try:
                f.write(piece)
                f.flush()
            except OSError as err:
                raise StoreError(f"{path}: cannot copy the shard to {tempfile.gettempdir()}: {err}; set TMPDIR to a larger disk") from err
        if found.hexdigest() != sha256:
            raise CorruptError(f"{path}: the file has sha256 {found.hexdigest()}, but the commit log lists {sha256}{SEE_VERIFY}")
        return mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)


def compared(path: str, body: bytes, pattern: re.Pattern[bytes] = _ENTRY_SUM) -> bytes:
    """Verify the checksum at the end of an entry, and return its bytes."""
    end = pattern.search(body, max(0, len(body) - 100))
    # Verify the checksum first, because a damaged version field must not look like another version.
    if not end:
        raise CorruptError(f"{path}: the file has no checksum at its end{SEE_VERIFY}")
    if hashlib.sha256(memoryview(body)[: end.start()]).hexdigest().encode() != end.group(1):
        raise CorruptError(f"{path}: the checksum of the file is wrong{SEE_VERIFY}")
    return body


class Fleet(NamedTuple):
    """The plan of a fleet."""

    id: str
    """The run id in the logs of all partitions."""
    used: list[int]
    """The numbers of the partitions that have tasks."""


def fleet(run: Path) -> Fleet | None:
    """Return the plan of a fleet, or None if there is no fleet.json."""
    path = join(run, "fleet.json")
    try:
        body = compared(path, read(path), _FLEET_SUM)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        plan = json.loads(body)
        if int(plan["version"]) > 1 or int(plan["schema_version"]) > SCHEMA_VERSION:
            raise NewerError(f"{path}: written by a newer version of rollout; install that version of rollout-rl")
        found = Fleet(str(plan["id"]), [number for number, part in enumerate(plan["partitions"]) if part["tasks"]])
    except (ValueError, KeyError, TypeError) as err:
        raise CorruptError(f"{path}: invalid plan of a fleet: {err!r}{SEE_VERIFY}") from err
    if not found.used or not re.fullmatch(r"\w[\w-]*", found.id):  # folders are named after the id
        raise CorruptError(f"{path}: invalid plan of a fleet: no partition has tasks, or the id is not valid{SEE_VERIFY}")
    return found


def partitions(run: Path) -> list[str]:
    """Return the folders of a fleet's partitions that have tasks, in order, or only `run` if it is not a fleet. Raises
    FolderError for the spool of a worker."""
    found = fleet(run)
    if found is None:
        _check_spool(run)
        return [os.fspath(run)]
    return [join(run, "partitions", f"{number:04d}") for number in found.used]


def _check_spool(run: Path) -> None:
    """Raise FolderError if a folder is the spool of a worker. It looks like a run without commits."""
    try:
        of = None if remote(run) else json.loads(read(join(run, "run.json")))["fleet"]["store"]
    except (OSError, ValueError, LookupError, TypeError):  # a run; readers that need run.json report a damaged file
        return
    if of is not None:
        raise FolderError(f"{os.fspath(run)}: the folder is the spool of a worker; the rows are in {of}", hint=f"pass {of!r}")


def check_run(run: str) -> None:
    """Raise FileNotFoundError unless a folder or a URL contains a run."""
    if not remote(run) and not os.path.isdir(run):
        raise FileNotFoundError(f"{run}: no such folder; pass the --out folder of `rollout collect`")
    if any(exists(join(run, name)) for name in ("fleet.json", "run.json")) or not remote(run) and os.path.isdir(join(run, "_commits")):
        return
    if not remote(run):
        raise FileNotFoundError(f"{run}: not the folder of a run: it has no run.json and no _commits/")
    # The first entry of a log can be missing only from the copy of a folder. Do not list a long log.
    if not exists(join(run, "_commits", f"{1:020d}.json")) and not names(join(run, "_commits")):
        raise FileNotFoundError(f"{run}: no run: there is no fleet.json, no run.json and no object in _commits/")


_text.files = sys.modules[__name__]
