"""The errors of the reader. Each says what is wrong, where, and what to do."""

from __future__ import annotations


class RolloutError(Exception):
    """The base of the errors below."""


class CorruptError(RolloutError):
    """The log or a shard is not what it should be; `rollout verify RUN` says more."""


class NewerError(CorruptError):
    """A newer version of rollout wrote the file; install that version."""


class StateError(RolloutError):
    """A saved state does not belong to these batches."""
