"""Argument checks. A wrong type raises TypeError, and a wrong value raises ValueError. The
message names the argument and its value, and describes a valid value. If the parameter `none` is
true, None is also valid."""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np


def integer(name: str, value: Any, least: int | None = None, none: bool = False) -> None:
    """Raise unless value is an integer that is at least `least`."""
    if value is None and none:
        return
    try:
        number = None if isinstance(value, (bool, np.bool_)) else operator.index(value)
    except TypeError:
        number = None
    if number is None:
        raise TypeError(f"{name}={shown(value)}: must be an integer{' or None' if none else ''}")
    if least is not None and number < least:
        raise ValueError(f"{name}={shown(value)}: must be ≥ {least}")


def real(name: str, value: Any, least: float | None = None, none: bool = False) -> None:
    """Raise unless value is a finite number that is at least `least`."""
    if value is None and none:
        return
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError(f"{name}={shown(value)}: must be a number{' or None' if none else ''}")
    if not math.isfinite(value) or least is not None and value < least:
        raise ValueError(f"{name}={shown(value)}: must be a finite number{'' if least is None else f' ≥ {least:g}'}")


def flag(name: str, value: Any, none: bool = False) -> None:
    """Raise unless value is a boolean."""
    if not (isinstance(value, (bool, np.bool_)) or value is None and none):
        raise TypeError(f"{name}={shown(value)}: must be True or False{' or None' if none else ''}")


def one_of(name: str, value: Any, allowed: Collection[str]) -> None:
    """Raise unless value is one of the allowed words."""
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{name}={shown(value)}: must be one of {', '.join(allowed)}")


def texts(name: str, value: Any, none: bool = False) -> None:
    """Raise unless value is a collection of strings. A single string is not valid."""
    if value is None and none:
        return
    if isinstance(value, str):
        raise TypeError(f"{name}={shown(value)}: must be a list of strings, such as [{value!r}]")
    if not isinstance(value, Collection) or isinstance(value, (bytes, Mapping)) or not all(isinstance(v, str) for v in value):
        raise TypeError(f"{name}={shown(value)}: must be a list of strings{' or None' if none else ''}")


def filepath(name: str, value: Any) -> None:
    """Raise unless value is the path of a file or folder."""
    if not isinstance(value, (str, os.PathLike)):
        raise TypeError(f"{name}={shown(value)}: must be a path")
    if not os.fspath(value):
        raise ValueError(f"{name}={shown(value)}: the path is empty")


def paths(name: str, value: Any) -> list[str]:
    """Return a path or several paths as a list of strings."""
    if not isinstance(value, (str, os.PathLike)) and (isinstance(value, (bytes, Mapping)) or not isinstance(value, Iterable)):
        raise TypeError(f"{name}={shown(value)}: must be a path or a list of paths")
    out = [value] if isinstance(value, (str, os.PathLike)) else list(value)
    for each in out:
        filepath(name, each)
    return [os.fspath(each) for each in out]


def instance(name: str, value: Any, kinds: type | tuple[type, ...], what: str, none: bool = False) -> None:
    """Raise unless value is an instance of one of the given types."""
    if not (isinstance(value, kinds) or value is None and none):
        raise TypeError(f"{name}={shown(value)}: must be {what}{' or None' if none else ''}")


def function(name: str, value: Any, none: bool = False) -> None:
    """Raise unless value is callable."""
    if not (callable(value) or value is None and none):
        raise TypeError(f"{name}={shown(value)}: must be a function{' or None' if none else ''}")


def shown(value: Any) -> str:
    """Format a value for an error message."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
