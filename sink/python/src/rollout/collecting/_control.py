"""The control socket of a collector. Requests and answers are lines of JSON."""

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
"""The longest socket path, in bytes, that every system supports (macOS has 104 bytes, Linux 108)."""


class GoneError(ConnectionError):
    """The collector does not answer, because it has ended or is restarting."""


class Control:
    """A connection to the collector. Only one thread sends requests over it, but any thread can
    close it."""

    def __init__(self, path: str, timeout: float = 10) -> None:
        self.path = path
        self._socket = _connect(path, timeout)
        self._file = self._socket.makefile("rb")
        self._lock = threading.RLock()  # reentrant, because the garbage collector can call close in the thread that runs ask

    def ask(self, op: str, timeout: float | None, **fields: Any) -> dict[str, Any]:
        """Send a request and return the answer, even if the answer reports an error.

        timeout: seconds to wait; None waits as long as the collector runs.
        Raises GoneError if no answer arrives. The connection cannot be used after this error.
        """
        line = json.dumps({"op": op, **fields}, allow_nan=False).encode() + b"\n"
        with self._lock:
            try:
                self._socket.settimeout(timeout)
                self._socket.sendall(line)
                answer = self._file.readline()
                if not answer.endswith(b"\n"):
                    raise GoneError(f"{op}: the collector has ended or is restarting")
                out = json.loads(answer)
            except (OSError, ValueError) as err:
                self._shut()
                raise err if isinstance(err, GoneError) else GoneError(f"{op}: {err}") from err
        if not isinstance(out, dict):
            raise GoneError(f"{op}: the collector sent an invalid answer: {out!r}")
        return out

    def close(self) -> None:
        """Close the connection. A request that waits for its answer raises GoneError."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes a thread that waits for an answer
        with self._lock:
            self._shut()

    def _shut(self) -> None:
        self._file.close()
        self._socket.close()


def _connect(path: str, timeout: float) -> socket.socket:
    """Connect to a socket with a path of any length."""
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
    """Yield a path to the same file that is short enough for a socket. It is valid inside the
    with block."""
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
    """Return the error for a request that the collector refused."""
    text, hint = str(answer.get("error") or "the collector refused the request without a reason"), str(answer.get("hint") or "")
    kind = BY_STATUS.get(int(answer.get("code") or 2), UsageError)
    return kind(f"{what}: {text}", code=None, hint=hint)
