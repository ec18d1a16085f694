"""Workers that pass the groups of a collector or a finished run to a trainer such as TRL or verl,
from a separate thread."""

from __future__ import annotations

import inspect
import os
import queue
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from rollout._types import Group, Row
from rollout.collecting.collect import collect
from rollout.data.dataset import Dataset
from rollout.errors import StateError


class Replay:
    """Iterates once over the groups of a dataset, in order. It implements the part of Collection
    that a Worker uses."""

    def __init__(self, dataset: Dataset) -> None:
        if dataset.follow:
            raise TypeError("a dataset with follow=True cannot be replayed: after the run has ended, pass a dataset without follow")
        self._dataset = dataset
        self._next = 0

    def __iter__(self) -> Iterator[Group]:
        while self._next < len(self._dataset):
            self._next += 1
            yield self._dataset[self._next - 1]

    @property
    def end(self) -> str:
        """A message that explains why there are no more groups."""
        return f"all {len(self._dataset)} groups of {', '.join(self._dataset.runs)} have been used: train for fewer steps, or pass more runs"

    def set_version(self, version: int) -> None:
        """Do nothing, because rows keep the versions that they were sampled with."""

    def state_dict(self) -> dict[str, Any]:
        """Return the position after the last returned group, as a dict of JSON values."""
        return {"snapshot": self._dataset.snapshot, "next": self._next}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved state. Raises StateError if the state is from other runs."""
        try:
            snapshot, place = list(state["snapshot"]), int(state["next"])
        except (KeyError, TypeError, ValueError) as err:
            raise StateError(f"state={state!r:.80} is not a position in a finished run: pass a state that was saved with a finished run") from err
        self._dataset = self._dataset.at(snapshot)
        self._next = place

    def close(self) -> None:
        """Do nothing, because there is no process to stop."""


def collector_of(config: Any, tasks: Any, options: dict[str, Any]) -> Any:
    """Return the existing collector or the finished run that config refers to. Otherwise return
    config unchanged. Worker.begin will then create a collector from it."""
    alone = tasks is None and not options
    path = isinstance(config, (str, os.PathLike))
    made = hasattr(config, "set_version")
    if path and (alone or os.path.isdir(config)):
        config = Dataset(config)  # a path without out= is a finished run
    if made or isinstance(config, Dataset):
        if not alone:
            what = "an existing collector" if made else "a finished run"
            raise TypeError(f"{', '.join(['tasks'] * (tasks is not None) + [*options])}: {what} accepts no settings")
        return config if made else Replay(config)
    if not (config is None or path or isinstance(config, Mapping)):
        raise TypeError(f"config={config!r:.60}: want settings for rollout.collect, a collector, a Dataset, or the folder of a finished run")
    try:
        inspect.signature(collect).bind(config, tasks, **options)
    except TypeError as err:
        raise TypeError(f"{err}: pass the arguments of rollout.collect, or only a collector, a Dataset, or the folder of a finished run") from None
    return config


class Worker:
    """A thread that passes each group to _put. _put blocks until the trainer has room for the
    group.

    The worker drops rows without a token to train on, because some trainers reject an empty
    response.

    config, tasks, options: the arguments for rollout.collect, which the worker calls when the
    training starts. If tasks and options are omitted, config can also be an existing collector or
    a finished run (its folder or a Dataset). The worker closes an existing collector at the end.
    It passes each group of a finished run once, in order. These rows keep the versions that they
    were sampled with.
    """

    def __init__(self, config: Any = None, tasks: Any = None, **options: Any) -> None:
        self._given = (collector_of(config, tasks, options), tasks, options)
        self._collector: Any = None
        self._version = 0
        self._set: list[tuple[float, int]] = []
        self._stopped = threading.Event()
        self._ended: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"rollout-{type(self).__module__}", daemon=True)

    def _put(self, group: Group, number: int) -> None:
        raise NotImplementedError

    def begin(self, state: dict[str, Any] | None = None) -> None:
        """Start collecting, or continue from a saved state. Raises the same errors as
        rollout.collect."""
        if self._stopped.is_set():
            raise RuntimeError("the worker is closed: create a new one")
        config, tasks, options = self._given
        if not hasattr(config, "set_version"):
            if state is not None:
                options = {**options, "state": state}
            # The trainer itself distributes the rows to its ranks.
            self._collector = collect(config, tasks, **{"distributed": False, **options})
        else:
            if state is not None:
                try:
                    config.load_state_dict(state)
                except BaseException:
                    config.close()
                    raise
            self._collector = config
        self._thread.start()
        if self._stopped.is_set():  # close was called before the collector existed
            self.close()

    def close(self) -> None:
        """Stop the collector and wait until it has ended. The next call of collect() with the
        same folder resumes the samples that were in flight."""
        self._stopped.set()
        if self._collector is not None:
            self._collector.close()
            if self._thread.is_alive():
                self._thread.join()

    def note(self, version: int) -> None:
        """Record the version of the weights that the engines use now or used before."""
        if not self._set or version != self._version:
            self._version = version
            self._set.append((time.time(), version))

    def set_version(self, version: int) -> None:
        """Report the version of the engines' current weights to the collector."""
        self.note(version)
        if self._collector is not None:
            self._collector.set_version(version)

    def versions(self, row: Row) -> tuple[int, int]:
        """Return the oldest and the newest policy version that might have sampled a row.

        These are the columns policy_version_min and policy_version_max. If the columns are null,
        the newest version is the current version, and the oldest version is the version that was
        set when the sample started. If no version was set at that time, the oldest version is 0.
        """
        oldest, newest = row["policy_version_min"], row["policy_version_max"]
        if oldest is None:
            began = row["started_at"].timestamp()
            oldest = max((v for at, v in self._set if at <= began), default=0)
        return int(oldest), int(self._version if newest is None else newest)

    def check(self) -> None:
        """Raise RuntimeError if there are no more groups."""
        if self._ended is not None and not self._stopped.is_set():
            raise RuntimeError(f"there are no more groups: {str(self._ended) or type(self._ended).__name__}") from self._ended

    def _run(self) -> None:
        try:
            for number, group in enumerate(self._collector):
                self._put(replace(group, rows=[row for row in group.rows if row["loss_mask"].any()]), number)
                if self._stopped.is_set():
                    return
            over = "the tasks ran out before training ended: add tasks, or train for fewer steps"
            self._ended = EOFError(self._collector.end if isinstance(self._collector, Replay) else over)
        except BaseException as err:
            self._ended = err


class OnRequest(Worker):
    """A worker that answers each request from the trainer with one group, in the order of the
    requests.

    If no group is left, the worker refuses the request, and check() raises an error with the
    reason. After close(), the worker ignores requests.
    """

    def __init__(self, config: Any = None, tasks: Any = None, **options: Any) -> None:
        super().__init__(config, tasks, **options)
        self._requests: queue.Queue[str | None] = queue.Queue()  # None: no more requests are accepted

    def _answer(self, request: str, group: Group) -> None:
        raise NotImplementedError

    def _refuse(self, request: str) -> None:
        raise NotImplementedError

    def check(self) -> None:
        """Raise RuntimeError if there are no more groups."""
        if self._stopped.is_set():
            raise RuntimeError("there are no more groups: the worker was closed")
        super().check()

    def close(self) -> None:
        """Stop the collector and wait until it has ended."""
        self._stopped.set()
        self._requests.put(None)
        super().close()

    def _put(self, group: Group, number: int) -> None:
        if (request := self._requests.get()) is not None:
            try:
                self._answer(request, group)
            except BaseException:
                self._requests.put(request)  # _run will refuse it
                raise

    def _run(self) -> None:
        super()._run()
        while not self._stopped.is_set() and (request := self._requests.get()) is not None:
            self._refuse(request)
