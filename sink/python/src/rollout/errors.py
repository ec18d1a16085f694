"""The errors that the package raises. Each message states the problem, where it is, and what to
do."""

from __future__ import annotations

from typing import Any

SEE_VERIFY = "; run `rollout verify` for details"
"""The last part of messages about damaged files."""


class RolloutError(Exception):
    """The base class of the errors below."""


class CorruptError(RolloutError):
    """The log or a shard is damaged; `rollout verify RUN` shows details."""


class NewerError(CorruptError):
    """A newer version of rollout wrote the file; install that version."""


class StoreError(RolloutError):
    """A bucket cannot be read: it does not exist, it is away, or it refuses the access."""


class StateError(RolloutError):
    """A saved state is from other batches or another run."""


class SessionError(RolloutError):
    """A session at a tap cannot begin or end."""

    def __init__(self, text: str, *, status: int | None = None) -> None:
        super().__init__(text)
        self.status = status
        """The HTTP status of the tap's answer, or None if there was no answer."""


class CollectError(RolloutError):
    """The collector that collect() started has failed.

    The text of the error includes the hint. If the program printed no message of its own, it also
    includes the last lines of standard error. The error can be pickled, so a rank or an actor can
    pass it to another process.
    """

    def __init__(self, text: str, *, code: int | None = None, hint: str = "", lines: tuple[str, ...] = ()) -> None:
        super().__init__(text)
        self.text = text
        self.code = code
        """The program's exit status. It is negative if a signal ended the program, and None if
        the program did not exit."""
        self.hint = hint
        """The program's hint on what to do, or ""."""
        self.lines = lines
        """The last lines of the program's standard error."""

    def __str__(self) -> str:
        return f"{self.text}\nhint: {self.hint}" if self.hint else self.text

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), self.text, self.code, self.hint, self.lines)


def _again(kind: type[CollectError], text: str, code: int | None, hint: str, lines: tuple[str, ...]) -> CollectError:
    return kind(text, code=code, hint=hint, lines=lines)


class UsageError(CollectError):
    """A setting, a flag or a task is wrong (exit status 2)."""


class ToleranceError(CollectError):
    """More samples failed than the settings allow, or no sample produced a row (exit status 4).

    This error is raised after the last group.
    """


class ServerError(CollectError):
    """The server or the model is unusable (exit status 5)."""


class StorageError(CollectError):
    """Storage failed: for example, the disk is full or access is denied (exit status 6)."""


class FolderError(CollectError):
    """The folder contains other files, or its run cannot be resumed as requested (exit status 7)."""


class LockedError(CollectError):
    """Another process has used the folder for longer than lock_wait (exit status 8)."""


class DamagedError(CollectError, CorruptError):
    """Files of the run are damaged (exit status 9)."""


class InterruptedRunError(CollectError):
    """A signal interrupted the collector (exit status 130). The run can be resumed."""


class CrashError(CollectError):
    """The collector was killed or crashed, and it failed again after each restart."""


BY_STATUS: dict[int, type[CollectError]] = {
    2: UsageError,
    4: ToleranceError,
    5: ServerError,
    6: StorageError,
    7: FolderError,
    8: LockedError,
    9: DamagedError,
    130: InterruptedRunError,
}
"""The error class for each exit status of the program. Any other status raises a CollectError."""
