"""Files that are mapped into memory: their names for other processes, and their pages."""

from __future__ import annotations

import mmap
import os
from typing import NamedTuple

from rollout.errors import CorruptError
from rollout.log import replaced

TOUCHED_BYTES = 24 << 20
"""Mapped bytes in memory with which a process lets go of the pages, of all its files.
They stay in the page cache of the system, so reading one again is no access to the disk."""
LOOK_BYTES = 8 << 20
"""Bytes that are read before it looks how many are in memory."""


class Source(NamedTuple):
    """A mapped file, for another process that maps it."""

    path: str
    device: int
    inode: int
    kept: str = ""
    """Another name of it, on Linux, for as long as the process that has mapped it keeps it open."""

    def map(self) -> mmap.mmap:
        """Map the file. Raise CorruptError where it is not the same any more."""
        for path in (self.path, replaced(self.path), self.kept):  # a merge may move and delete it
            try:
                with open(path, "rb") as f:
                    now = os.fstat(f.fileno())
                    if (now.st_dev, now.st_ino) != self[1:3]:
                        break
                    return mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
            except (FileNotFoundError, PermissionError):
                pass
        raise CorruptError(f"{self.path}: another file has taken its place while it was read; rollout verify says more")


class Pages:
    """Says when a process lets go of the pages that it has mapped.

    How much the system maps around a page that is read is its own affair, so it is asked.
    """

    def __init__(self) -> None:
        self._read = 0
        self._left = 0  # in memory where pages were let go of

    def full(self, read: int) -> bool:
        """Count bytes that were read, and report whether it is time."""
        self._read += read
        if self._read <= LOOK_BYTES:
            return False
        self._read, now = 0, resident()
        return now > self._left + TOUCHED_BYTES or not now

    def gone(self) -> None:
        """Note that the pages were let go of."""
        self._left = resident()


def resident() -> int:
    """Return how many bytes of files this process has mapped and touched, 0 where the system does not say."""
    try:
        with open("/proc/self/statm", "rb", buffering=0) as f:
            return int(f.read(200).split()[2]) * mmap.PAGESIZE
    except OSError:
        return 0
