"""Starts and stops the collector process, and reads its events and its standard error."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import subprocess
import tempfile
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rollout.collecting._settings import without
from rollout.errors import BY_STATUS, CollectError, CrashError

log = logging.getLogger("rollout.collect")

LAST_LINES = 40
"""The number of standard error lines that are kept."""

_PANIC = re.compile(r"^(panic: |fatal error: |runtime: |SIG[A-Z]+: )")
"""Matches lines that the Go runtime prints before it ends a program with exit status 2."""

_children: weakref.WeakSet[Child] = weakref.WeakSet()

_pipes = threading.RLock()
"""A fork waits for this lock. Otherwise the forked process could inherit a pipe that does not yet
belong to a Child, and could not close this pipe."""


class Child:
    """A collector process. It runs until it has collected everything or its standard input is
    closed.

    The collector runs in its own session, so Ctrl-C in a terminal reaches only the Python
    process. When the Python process ends for any reason, the collector's standard input is closed
    too. Processes forked from the Python process, such as DataLoader workers, do not keep this
    input open.

    settings: the content of the settings file (-c). This is a temporary file without a name in
    any folder, so a crash cannot leave it behind.
    """

    def __init__(self, command: Sequence[str], env: Mapping[str, str], secrets: Sequence[str], settings: bytes | None = None) -> None:
        self._verb = "".join(command[1:2])
        self._secrets = list(secrets)
        self._config = ""  # the path of the settings file
        self.lines: deque[str] = deque(maxlen=LAST_LINES)
        self.launched = False
        self._alive: list[int] = []
        with _pipes:
            self._launch(list(command), dict(env), settings)
        self._listener = threading.Thread(target=self._listen, name="rollout-stderr", daemon=True)
        self._listener.start()

    def _launch(self, args: list[str], env: dict[str, str], settings: bytes | None) -> None:
        _children.add(self)
        read, write = os.pipe()
        self._alive.append(write)
        try:
            with tempfile.TemporaryFile() as file:
                files = []
                if settings is not None:
                    file.write(settings)
                    file.seek(0)  # on macOS, both processes share the file offset
                    files, self._config = [file.fileno()], f"/dev/fd/{file.fileno()}"
                    args += ["-c", self._config]
                self.process = subprocess.Popen(
                    args, env=env, stdin=read, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, pass_fds=files
                )
        except BaseException:
            self._let_go()
            raise
        finally:
            os.close(read)

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield events until the process closes its output."""
        assert self.process.stdout is not None
        with self.process.stdout as out:
            for line in out:
                try:
                    event = json.loads(line)
                except ValueError:
                    log.warning("the collector wrote an invalid event: %r", line[:200])
                    continue
                if isinstance(event, dict):
                    self.launched = self.launched or event.get("event") == "launch"
                    yield event

    def wait(self) -> int:
        """Wait for a process that has closed its output, and return its exit status."""
        code = self.process.wait()
        self._listener.join(5)
        self._let_go()
        return code

    def _listen(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as err:
            for raw in err:
                (line,) = without([raw.decode(errors="replace").rstrip()], self._secrets)
                if self._config:
                    line = line.replace(self._config, "config")
                self.lines.append(line)
                log.info("%s", line)

    def _let_go(self) -> None:
        """Close this end of the collector's standard input, which stops the collector."""
        with _pipes:
            while self._alive:
                os.close(self._alive.pop())

    def crashed(self, code: int) -> bool:
        """Report whether the process ended abnormally."""
        return code < 0 or code > 130 or code == 2 and any(_PANIC.match(line) for line in self.lines)

    def error(self, code: int) -> CollectError | None:
        """Return the error for an exit status, or None if the status means that everything was
        collected."""
        if code in (0, 3):
            return None
        lines = tuple(self.lines)
        if self.crashed(code):
            how = f"was killed by signal {-code}" if code < 0 else f"crashed (exit status {code})"
            said = "".join(f"\n    {line}" for line in lines[-5:])
            return CrashError(f"the collector {how}{said}", code=code, lines=lines)
        hint, said_lines = "", []
        for line in lines:
            if line.startswith("hint: "):
                hint = line[len("hint: ") :]
            elif line.startswith("rollout: "):
                said_lines.append(line[len("rollout: ") :])
        text = said_lines[-1] if said_lines else "\n".join(lines[-5:]) or "no output on standard error"
        return BY_STATUS.get(code, CollectError)(f"rollout {self._verb}, exit status {code}: {text}", code=code, hint=hint, lines=lines)


def stop(children: Sequence[Child], grace: float) -> None:
    """Stop processes by closing their standard inputs. Send SIGTERM to those that are still running
    after grace / 2 seconds, and SIGKILL after grace seconds."""
    for child in children:
        child._let_go()
    try:
        for _ in range(2):
            until = time.monotonic() + grace / 2
            for child in children:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.process.wait(max(0.0, until - time.monotonic()))
            for child in children:
                child.process.terminate()
    finally:
        for child in children:
            child.process.kill()
        for child in children:
            child.process.wait()


def _forked() -> None:
    """Close a forked process's copies of the pipes to its parent's collectors."""
    for child in list(_children):
        child._let_go()
    _pipes.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_pipes.acquire, after_in_parent=_pipes.release, after_in_child=_forked)


def back_off(tries: int) -> float:
    """Return the pause before a restart. The first pause is 0.1 s. Each later pause is twice as
    long as the pause before, up to 10 s."""
    return min(10.0, 0.1 * 2.0 ** max(0, tries))

