"""The actors of rollout.ray, without Ray."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import rollout
from rollout._actors import Worker
from rollout.collecting._settings import Settings


def test_each_worker_has_a_subfolder_of_its_own(tmp_path: Path) -> None:
    def worker() -> Worker:
        return Worker("s3://bucket/run", str(tmp_path / "spool/id"), Settings())

    workers = [worker() for _ in range(3)]
    assert [w._subfolder() for w in workers] == [str(tmp_path / f"spool/id/{i}") for i in range(3)]
    assert not (tmp_path / "spool/id/0").exists()  # rollout work creates it
    os.close(workers[1]._lock)  # its process was killed
    workers[1] = worker()
    assert workers[1]._subfolder() == str(tmp_path / "spool/id/1")
    for w in workers:
        os.close(w._lock)


def test_a_spool_that_cannot_be_created(tmp_path: Path) -> None:
    (tmp_path / "spool").write_text("a file")
    with pytest.raises(rollout.StorageError, match=f"^spool: .*{tmp_path}/spool.*\nhint: pass a folder that workers can write on each node"):
        Worker("s3://bucket/run", str(tmp_path / "spool/id"), Settings())._subfolder()
