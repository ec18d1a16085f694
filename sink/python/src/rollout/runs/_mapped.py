"""Memory-mapped files: how another process finds them, and when their pages are released."""

from __future__ import annotations

import mmap
import os
from typing import NamedTuple

from rollout.errors import SEE_VERIFY, CorruptError
from rollout.runs.log import replaced

TOUCHED_BYTES = 24 << 20
"""A process releases the pages of all its files when this number of mapped bytes is resident. The
pages stay in the system's page cache, so reading them again does not need the disk."""
LOOK_BYTES = 8 << 20
"""The number of bytes that are read between two checks of the resident size."""


class Source(NamedTuple):
    """A mapped file that another process can map."""

    path: str
    device: int
    inode: int
    kept: str = ""
    """On Linux, another path to the file, or "". It is valid while the process that created this
    Source keeps the file open."""

    def map(self) -> mmap.mmap:
        """Map the file. Raises CorruptError if it cannot be found or another file has replaced
        it."""
        for path in (self.path, replaced(self.path), self.kept):  # a merge can move and delete the file
            try:
                with open(path, "rb") as f:
                    now = os.fstat(f.fileno())
                    if (now.st_dev, now.st_ino) != self[1:3]:
                        break
                    return mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
            except (FileNotFoundError, PermissionError):
                pass
        raise CorruptError(f"{self.path}: another file replaced this file while it was being read{SEE_VERIFY}")


class Pages:
    """Decides when a process releases the pages that it has mapped.

    It queries the resident size, because the system also maps an unknown number of pages around
    each page that is read.
    """

    def __init__(self) -> None:
        self._read = 0
        self._left = 0  # bytes still resident after the last release

    def full(self, read: int) -> bool:
        """Add `read` to the number of bytes read, and report whether to release the pages."""
        self._read += read
        if self._read <= LOOK_BYTES:
            return False
        self._read, now = 0, resident()
        return now > self._left + TOUCHED_BYTES or not now

    def released(self) -> None:
        """Record that the pages were released."""
        self._left = resident()


def resident() -> int:
    """Return how many bytes of mapped files are resident in this process, or 0 if this is
    unknown."""
    try:
        with open("/proc/self/statm", "rb", buffering=0) as f:
            return int(f.read(200).split()[2]) * mmap.PAGESIZE
    except OSError:
        return 0
