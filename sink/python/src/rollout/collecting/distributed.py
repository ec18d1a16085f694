"""A collection for all ranks of a training job: rank 0 runs the collector, and every rank gets
groups.

In a round, each rank gets one whole group, in log order: rank r of W gets groups r, r + W,
r + 2W … All ranks have the same number of rounds. If there are no more groups or rank 0 fails,
all ranks stop or raise the error in the same round. Groups are sent over a separate process group
(gloo). So the collective operations of the training do not time out while a rank waits for a slow
rollout. While rank 0 waits, it sends a message to the other ranks every second.

A round is acknowledged when all ranks have requested the next round. If there are too few groups
for the last round, these groups are neither returned nor acknowledged, and no state covers them.
When the run is resumed, they are returned first.
"""

from __future__ import annotations

import asyncio
import datetime
import pickle
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from types import TracebackType
from typing import Any

from rollout._process import distributed
from rollout._types import Group
from rollout.collecting.collection import Collection
from rollout.errors import RolloutError, StateError
from rollout.runs.select import Counts

BEAT = 1.0
"""While rank 0 waits, it sends a message each time this number of seconds has passed."""

PATIENCE = datetime.timedelta(days=1)
"""The maximum time that a rank can train on one group. A rank that dies is detected
immediately."""


class RankedCollection:
    """The result of collect() on each rank of torch.distributed; see Collection.

    All ranks must iterate the same number of times. set_version, pause, resume, drain, add and ack
    take effect on rank 0 and do nothing on other ranks, so all ranks can run the same code.
    state_dict returns the same state on all ranks. Every rank must call load_state_dict with the
    same state.
    """

    def __init__(self, make: Callable[[], Collection], auto: bool, timeout: float | None, max_ahead: int | None) -> None:
        import torch.distributed as dist

        self._dist: Any = dist
        self.rank, self.world_size = distributed()
        self._group = self._dist.new_group(backend="gloo", timeout=PATIENCE)
        self._auto, self._timeout, self._max_ahead = auto, timeout, max_ahead
        self._inner: Collection | None = None
        self._pulled: list[Group] = []  # the groups of an incomplete round
        self._last: Group | None = None  # the group of the last complete round, until the round is acknowledged
        self._over: BaseException | None = None
        self._counts: Counts = {}
        self._state: dict[str, Any] = {}
        error: BaseException | None = None
        if self.rank == 0:
            try:
                self._inner = make()
                self._state = self._inner.state_dict()
            except Exception as err:
                error = err
        self._state = self._agreed(error)

    def __iter__(self) -> Iterator[Group]:
        return self

    def __next__(self) -> Group:
        """Wait until every rank has requested a group, and return this rank's group.

        If rank 0 fails, all ranks raise its error; see Collection. After a TimeoutError, all
        ranks can call again.
        """
        if self._over is not None:
            raise self._over
        self._dist.barrier(group=self._group)
        given: list[Any] = [None]
        words: list[Any] | None = None
        since = time.monotonic()
        while True:
            if self._inner is not None:
                words = self._words(since)
            self._dist.scatter_object_list(given, words, src=0, group=self._group)
            kind, value, state, counts = pickle.loads(given[0])
            if kind == "wait":
                continue
            self._counts = counts
            if kind == "group":
                self._state = state
                group: Group = value
                return group
            if not isinstance(value, TimeoutError):
                self._over = value
            raise value

    def __aiter__(self) -> AsyncIterator[Group]:
        return self

    async def __anext__(self) -> Group:
        """Like __next__. If a call is canceled, the other ranks continue to wait."""
        if self._inner is not None:
            self._inner.feed()
        try:
            return await asyncio.get_running_loop().run_in_executor(None, self._next)
        except _EndError:
            raise StopAsyncIteration from None

    def _next(self) -> Group:
        try:
            return next(self)
        except StopIteration:  # a future cannot raise it
            raise _EndError from None

    def _words(self, since: float) -> list[bytes]:
        """On rank 0, return the next message for each rank, after at most BEAT seconds."""
        inner = self._inner
        assert inner is not None
        n = self.world_size
        wait = [pickle.dumps(("wait", None, None, None))] * n
        try:
            if self._max_ahead is None:
                try:  # max_ahead can come from the settings file
                    self._max_ahead = int(inner.status(BEAT).get("groups", {}).get("max_ahead") or 0)
                except TimeoutError:
                    return wait
                enough(self._max_ahead, n)
            if self._auto:
                self.ack()
            until = time.monotonic() + BEAT
            while len(self._pulled) < n:
                group = inner.within(until - time.monotonic())
                if group is None:
                    if self._timeout is not None and time.monotonic() - since > self._timeout:
                        said = f"not enough groups for all {n} ranks within {self._timeout:g} s"
                        raise TimeoutError(f"{inner.run}: {said}; call status() for details")
                    return wait
                self._pulled.append(group)
        except StopIteration as end:
            counts = inner.counts
            if self._pulled:
                left = self._pulled
                counts["remainder"] = {"groups": len(left), "samples": sum(g.size for g in left), "rows": sum(len(g.rows) for g in left)}
            return [pickle.dumps(("error", end, None, counts))] * n
        except Exception as err:
            return [_packed(err, inner.counts)] * n
        round_, self._pulled, self._last = self._pulled, [], self._pulled[-1]
        return [pickle.dumps(("group", group, inner.state_dict(), inner.counts)) for group in round_]

    def _agreed(self, error: BaseException | None) -> dict[str, Any]:
        """On all ranks, return the state of rank 0, or raise the error of rank 0."""
        said: list[Any] = [_packed(error, {}) if error else pickle.dumps(("state", self._state, None, None))]
        self._dist.broadcast_object_list(said, src=0, group=self._group)
        kind, value, _, _ = pickle.loads(said[0])
        if kind == "error":
            raise value
        state: dict[str, Any] = value
        return state

    def set_version(self, version: int) -> None:
        """Collection.set_version on rank 0."""
        if self._inner is not None:
            self._inner.set_version(version)

    def pause(self) -> None:
        """Collection.pause on rank 0."""
        if self._inner is not None:
            self._inner.pause()

    def resume(self) -> None:
        """Collection.resume on rank 0."""
        if self._inner is not None:
            self._inner.resume()

    def drain(self) -> None:
        """Collection.drain on rank 0."""
        if self._inner is not None:
            self._inner.drain()

    def add(self, task: Mapping[str, Any]) -> None:
        """Collection.add on rank 0."""
        if self._inner is not None:
            self._inner.add(task)

    def ack(self) -> None:
        """Acknowledge all returned rounds, on rank 0."""
        last, self._last = self._last, None
        if self._inner is not None and last is not None:
            self._inner.ack(last)

    def status(self, timeout: float = 30) -> dict[str, Any]:
        """Collection.status on rank 0, and {} on the other ranks."""
        return {} if self._inner is None else self._inner.status(timeout)

    @property
    def counts(self) -> Counts:
        """Collection.counts as of the last round. After the last round, the reason "remainder"
        counts the groups that were not returned."""
        return {k: dict(v) for k, v in self._counts.items()}

    def state_dict(self) -> dict[str, Any]:
        """Return the place after the last returned round. All ranks return the same place."""
        return dict(self._state)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue after a state, like Collection.load_state_dict. Waits for every rank.

        If the states of the ranks differ, all ranks raise StateError. If rank 0 fails, all ranks
        raise its error.
        """
        states: list[Any] = [None] * self.world_size
        self._dist.all_gather_object(states, dict(state), group=self._group)
        error: BaseException | None = None
        if any(other != states[0] for other in states):
            error = StateError(f"the ranks have different states, {states!r:.400}: load the same checkpoint on all of them")
        elif self._inner is not None:
            try:
                self._inner.load_state_dict(state)
                self._state, self._pulled, self._last = self._inner.state_dict(), [], None
            except Exception as err:
                error = err
        self._state = self._agreed(error)
        self._over = None

    def close(self) -> None:
        """Stop the collector if this is rank 0. Does not wait for the other ranks."""
        if self._inner is not None:
            self._inner.close()

    def __enter__(self) -> RankedCollection:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    async def __aenter__(self) -> RankedCollection:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._inner is not None:
            await self._inner.aclose()

    def __reduce__(self) -> Any:
        raise TypeError("a collection cannot be pickled: it belongs to its rank")


class _EndError(Exception):
    """Used instead of StopIteration, which a future cannot raise."""


def enough(max_ahead: int, world_size: int) -> None:
    """Raise ValueError if max_ahead is too small for a complete round."""
    if 0 < max_ahead < world_size:
        raise ValueError(f"max_ahead={max_ahead}: must be at least {world_size}, one group for each rank")


def _packed(error: BaseException, counts: Counts) -> bytes:
    """Encode an error for the other ranks. If the error cannot be pickled, encode its text."""
    try:
        out = pickle.dumps(("error", error, None, counts))
        pickle.loads(out)
        return out
    except Exception:
        return pickle.dumps(("error", RolloutError(f"rank 0: {error!r}"), None, counts))
