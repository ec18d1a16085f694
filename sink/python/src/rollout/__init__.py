"""Read what rollout collected, whole groups at a time, from PyTorch or without it."""

from rollout._types import Group, Row

__all__ = ["Group", "Row"]
