"""Read what rollout collected, whole groups at a time, from PyTorch or without it."""

from rollout import advantages, collate
from rollout._loss_weights import loss_weights
from rollout._program import program, version
from rollout._types import Group, Row
from rollout.errors import CorruptError, NewerError, RolloutError, StateError

__version__ = version()

__all__ = [
    "CorruptError",
    "Group",
    "NewerError",
    "RolloutError",
    "Row",
    "StateError",
    "__version__",
    "advantages",
    "collate",
    "loss_weights",
    "program",
]
