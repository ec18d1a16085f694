"""Read what rollout collected, whole groups at a time, from PyTorch or without it."""

from rollout import advantages, collate
from rollout._check import check
from rollout._loss_weights import loss_weights
from rollout._program import program, version
from rollout._types import Group, Row
from rollout.dataset import Dataset
from rollout.errors import CorruptError, NewerError, RolloutError, StateError
from rollout.filters import Where
from rollout.follow import Following
from rollout.loader import Batches, DataLoader

__version__ = version()

__all__ = [
    "Batches",
    "CorruptError",
    "DataLoader",
    "Dataset",
    "Following",
    "Group",
    "NewerError",
    "RolloutError",
    "Row",
    "StateError",
    "Where",
    "__version__",
    "advantages",
    "check",
    "collate",
    "loss_weights",
    "program",
]
