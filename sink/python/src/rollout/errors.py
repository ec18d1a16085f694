"""The errors of the package. Each says what is wrong, where, and what to do."""

from __future__ import annotations

from typing import Any


class RolloutError(Exception):
    """The base of the errors below."""


class CorruptError(RolloutError):
    """The log or a shard is not what it should be; `rollout verify RUN` says more."""


class NewerError(CorruptError):
    """A newer version of rollout wrote the file; install that version."""


class StateError(RolloutError):
    """A saved state does not belong to these batches."""


class CollectError(RolloutError):
    """The collector that collect() started has ended with an error.

    Its text has the hint and, where the program said little, the last lines of its
    standard error. It can be pickled, so that a rank or an actor can pass it on.
    """

    def __init__(self, text: str, *, code: int | None = None, hint: str = "", lines: tuple[str, ...] = ()) -> None:
        super().__init__(text)
        self.text = text
        self.code = code
        """The exit status of the program, negative for a signal; None where none ended it."""
        self.hint = hint
        """What to do, in the program's words; "" where it says nothing."""
        self.lines = lines
        """The last lines of its standard error."""

    def __str__(self) -> str:
        return f"{self.text}\nhint: {self.hint}" if self.hint else self.text

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), self.text, self.code, self.hint, self.lines)


def _again(kind: type[CollectError], text: str, code: int | None, hint: str, lines: tuple[str, ...]) -> CollectError:
    return kind(text, code=code, hint=hint, lines=lines)


class UsageError(CollectError):
    """A setting, a flag or a task is wrong (exit status 2)."""


class ToleranceError(CollectError):
    """More samples failed than the settings allow, or none gave a row (exit status 4).

    It is raised after the last group.
    """


class ServerError(CollectError):
    """No server or model is usable (exit status 5)."""


class StorageError(CollectError):
    """The disk is full or denies access (exit status 6)."""


class FolderError(CollectError):
    """The folder holds something else, or its run cannot be continued so (exit status 7)."""


class LockedError(CollectError):
    """Another process has collected into the folder for longer than lock_wait (exit status 8)."""


class DamagedError(CollectError, CorruptError):
    """Files of the run are damaged (exit status 9)."""


class InterruptedRunError(CollectError):
    """Someone else interrupted the collector (exit status 130); the run can be continued."""


class CrashError(CollectError):
    """The collector was killed or has crashed, and starting it again did not help."""


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
"""The error of each exit status of the program; of any other it is CollectError."""
