"""Collect rollouts, and read them from runs group by group, with or without PyTorch.

    runs        a run's folder: its log, its shards, filters, and how to follow a run in progress
    data        Dataset, batches, DataLoader
    train       collate, advantages, loss weights, check, and adapters for trainers
    collecting  collect() and the collector process
    tracking    log_to, for experiment trackers
    trl, verl   workers for TRL and verl
"""

from rollout._text import decode
from rollout._types import Group, Row
from rollout.collecting._program import program, version
from rollout.collecting.collect import collect
from rollout.collecting.collection import Collection
from rollout.collecting.session import Session, session
from rollout.data.dataset import Dataset
from rollout.data.loader import Batches, DataLoader
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
    SessionError,
    StateError,
    StorageError,
    StoreError,
    ToleranceError,
    UsageError,
)
from rollout.runs import log
from rollout.runs.follow import Following
from rollout.runs.select import Where
from rollout.tracking.log_to import log_to
from rollout.train import advantages, collate
from rollout.train.adapters import to_slime, to_tinker, to_trl, to_verl
from rollout.train.check import check
from rollout.train.weights import loss_weights

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
    "Session",
    "SessionError",
    "StateError",
    "StorageError",
    "StoreError",
    "ToleranceError",
    "UsageError",
    "Where",
    "__version__",
    "advantages",
    "check",
    "collate",
    "collect",
    "decode",
    "log",
    "log_to",
    "loss_weights",
    "program",
    "session",
    "to_slime",
    "to_tinker",
    "to_trl",
    "to_verl",
]
