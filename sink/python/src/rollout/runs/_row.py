"""Rows that read their columns on first use."""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator, Sequence, ValuesView
from typing import Any, Protocol

from rollout._types import Row

_UNREAD: Any = type("Unread", (), {"__repr__": lambda _: "<a column that was not read: dict(row) reads all>"})()
"""The placeholder for a value that has not yet been read. Code that bypasses the methods of the
dict gets this placeholder and fails. A missing key instead of a placeholder could be mistaken for
a null."""


class Source(Protocol):
    """The rows of a file. A column is read when a row first needs it."""

    def value(self, name: str, number: int) -> Any:
        """Return the value of a column in the row with the given number in the shard."""


class LazyRow(Row):
    """A dict by column name that reads each value on first use."""

    __slots__ = ("_number", "_source")

    def __init__(self, template: dict[str, Any], source: Source, number: int) -> None:
        super().__init__(template)
        self._source, self._number = source, number

    def use(self, wrap: Callable[[Source], Source]) -> None:
        """Replace the source of the columns that were not read yet."""
        self._source = wrap(self._source)

    def __getitem__(self, name: str) -> Any:
        value = super().__getitem__(name)
        if value is _UNREAD:
            value = self._source.value(name, self._number)
            super().__setitem__(name, value)
        return value

    def _read(self) -> LazyRow:
        """Read all unread columns."""
        for name in self:
            self[name]
        return self

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self else default

    def setdefault(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self else super().setdefault(name, default)

    def pop(self, name: str, *default: Any) -> Any:
        self.get(name)
        return super().pop(name, *default)

    def popitem(self) -> tuple[str, Any]:
        self._read()
        return super().popitem()

    def values(self) -> ValuesView[Any]:  # type: ignore[override]
        return dict.values(self._read())

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]
        return dict.items(self._read())

    def copy(self) -> dict[str, Any]:
        return dict(self)

    def __iter__(self) -> Iterator[str]:
        return super().__iter__()  # with this method, dict(row) and {**row} call __getitem__

    def __eq__(self, other: object) -> bool:
        return dict.__eq__(self._read(), other._read() if isinstance(other, LazyRow) else other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __or__(self, other: Any) -> Any:
        return dict(self) | other

    def __ror__(self, other: Any) -> Any:
        return other | dict(self)

    def __repr__(self) -> str:
        return dict.__repr__(self._read())

    def __reduce__(self) -> tuple[Callable[..., Row], tuple[Any, ...]]:
        return _copy, (dict(self), getattr(self, "run", None))


def _copy(columns: dict[str, Any], run: str | None) -> Row:
    row = Row(columns)
    if run is not None:
        row.run = run
    return row


def template(have: Sequence[str], columns: Sequence[str] | None) -> dict[str, Any]:
    """Return a dict from which each row of a file is created.

    `have` lists the columns of the file, and `columns` lists the columns to read. None means all
    columns.
    """
    return dict.fromkeys(have if columns is None else columns, _UNREAD)
