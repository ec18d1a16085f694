"""Memory-mapped files: their names for other processes, and their resident pages."""

from __future__ import annotations

import mmap
import os
from typing import NamedTuple

from rollout.errors import SEE_VERIFY, CorruptError
from rollout.runs.log import replaced

TOUCHED_BYTES = 24 << 20
"""The number of resident mapped bytes at which a process releases the pages of all its files. The
pages stay in the system's page cache, so rereading them needs no disk access."""
LOOK_BYTES = 8 << 20
"""The number of bytes read between two checks of the resident size."""


class Source(NamedTuple):
    """A mapped file that another process can map."""

    path: str
    device: int
    inode: int
    kept: str = ""
    """Another name of the file, on Linux. It is valid while the process that mapped it keeps it open."""

    def map(self) -> mmap.mmap:
        """Map the file. Raises CorruptError if another file has replaced it."""
        for path in (self.path, replaced(self.path), self.kept):  # a merge can move and delete the file
            try:
                with open(path, "rb") as f:
                    now = os.fstat(f.fileno())
                    if (now.st_dev, now.st_ino) != self[1:3]:
                        break
                    return mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
            except (FileNotFoundError, PermissionError):
                pass
        raise CorruptError(f"{self.path}: another file replaced it during the read{SEE_VERIFY}")


class Pages:
    """Decides when a process releases the pages that it has mapped.

    The system decides how many pages to map around a page that is read, so this class queries the
    resident size.
    """

    def __init__(self) -> None:
        self._read = 0
        self._left = 0  # bytes still resident after the last release

    def full(self, read: int) -> bool:
        """Count bytes read, and report whether to release the pages."""
        self._read += read
        if self._read <= LOOK_BYTES:
            return False
        self._read, now = 0, resident()
        return now > self._left + TOUCHED_BYTES or not now

    def released(self) -> None:
        """Record that the pages were released."""
        self._left = resident()


def resident() -> int:
    """Return the number of bytes of mapped files that are resident in this process, or 0 if unknown."""
    try:
        with open("/proc/self/statm", "rb", buffering=0) as f:
            return int(f.read(200).split()[2]) * mmap.PAGESIZE
    except OSError:
        return 0
