"""Collect rollouts, and read collected ones: whole groups at a time, with or without PyTorch."""

from rollout import advantages, collate
from rollout._check import check
from rollout._loss_weights import loss_weights
from rollout._program import program, version
from rollout._types import Group, Row
from rollout.collecting import Collection, collect
from rollout.dataset import Dataset
from rollout.errors import (
    CollectError,
    CorruptError,
    CrashError,
    DamagedError,
    FolderError,
    InterruptedRunError,
    LockedError,
    NewerError,
    RolloutError,
    ServerError,
    StateError,
    StorageError,
    ToleranceError,
    UsageError,
)
from rollout.filters import Where
from rollout.follow import Following
from rollout.loader import Batches, DataLoader

__version__ = version()

__all__ = [
    "Batches",
    "CollectError",
    "Collection",
    "CorruptError",
    "CrashError",
    "DamagedError",
    "DataLoader",
    "Dataset",
    "FolderError",
    "Following",
    "Group",
    "InterruptedRunError",
    "LockedError",
    "NewerError",
    "RolloutError",
    "Row",
    "ServerError",
    "StateError",
    "StorageError",
    "ToleranceError",
    "UsageError",
    "Where",
    "__version__",
    "advantages",
    "check",
    "collate",
    "collect",
    "loss_weights",
    "program",
]
