"""The socket of a collector: a request is a line of JSON, and so is its answer."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import tempfile
import threading
from collections.abc import Iterator
from typing import Any

from rollout.errors import BY_STATUS, CollectError, UsageError

LONGEST_PATH = 100
"""Bytes of a path that a socket's address holds on every system (104 on macOS, 108 on Linux)."""


class GoneError(ConnectionError):
    """The collector does not answer: it has ended, or it is being started again."""


class Control:
    """One connection, for the requests of one thread; any thread may close it."""

    def __init__(self, path: str, timeout: float = 10) -> None:
        self.path = path
        self._socket = _connect(path, timeout)
        self._file = self._socket.makefile("rb")
        self._lock = threading.RLock()  # the garbage collector may close it in the thread that asks

    def ask(self, op: str, timeout: float | None, **fields: Any) -> dict[str, Any]:
        """Return the answer to a request, whatever it says.

        timeout: seconds to wait for it; None waits as long as the collector lives.
        Raises GoneError where no answer comes. The connection is of no use then.
        """
        line = json.dumps({"op": op, **fields}, allow_nan=False).encode() + b"\n"
        with self._lock:
            try:
                self._socket.settimeout(timeout)
                self._socket.sendall(line)
                answer = self._file.readline()
                if not answer.endswith(b"\n"):
                    raise GoneError(f"{op}: the collector is gone")
                out = json.loads(answer)
            except (OSError, ValueError) as err:
                self._shut()
                raise err if isinstance(err, GoneError) else GoneError(f"{op}: {err}") from err
        if not isinstance(out, dict):
            raise GoneError(f"{op}: the collector answered {out!r}")
        return out

    def close(self) -> None:
        """End the connection; a request that waits ends with GoneError."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes a thread that waits for an answer
        with self._lock:
            self._shut()

    def _shut(self) -> None:
        self._file.close()
        self._socket.close()


def _connect(path: str, timeout: float) -> socket.socket:
    """Return a connection to a socket, however long its path is."""
    out = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        out.settimeout(timeout)
        with _short(path) as short:
            out.connect(short)
    except OSError as err:
        out.close()
        raise GoneError(f"{path}: {err}") from err
    return out


@contextlib.contextmanager
def _short(path: str) -> Iterator[str]:
    """Give a short name of a path while it is used."""
    if len(os.fsencode(path)) <= LONGEST_PATH:
        yield path
        return
    folder, name = os.path.split(path)
    if os.path.isdir("/proc/self/fd"):
        number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            yield f"/proc/self/fd/{number}/{name}"
        finally:
            os.close(number)
        return
    with tempfile.TemporaryDirectory(prefix="rollout-") as made:
        link = os.path.join(made, "run")
        os.symlink(os.path.abspath(folder), link)
        yield os.path.join(link, name)


def refusal(what: str, answer: dict[str, Any]) -> CollectError:
    """Return the error of an answer that is not ok."""
    text, hint = str(answer.get("error") or "refused, with no reason"), str(answer.get("hint") or "")
    kind = BY_STATUS.get(int(answer.get("code") or 2), UsageError)
    return kind(f"{what}: {text}", code=None, hint=hint)
