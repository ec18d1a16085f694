"""Collects on a Ray cluster: workers are actors, and the groups reach the trainer as references to objects.

    with rollout.ray.collect("run.yaml", tasks, out="s3://bucket/run1", workers=8, spool="/tmp/spool") as groups:
        for reference in groups:
            train(reference.get())          # here, or in another actor
            state = groups.state_dict()     # save it with the model

The run is a fleet: `rollout plan` splits its tasks into partitions, and each worker runs the process
`rollout work`. The store alone decides which samples exist, so Ray can kill any process and any node. Nothing
is lost, and no group comes twice.

An actor on the trainer's node reads the groups and puts them into Ray's object store. It has no state of its
own: each request contains the trainer's place. If this actor is killed, or if an object is lost with its node,
the groups are read again from the store.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import tempfile
import time
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rollout._actors import GRACE, Reader, Worker
from rollout._args import filepath, instance, integer, one_of, real, texts
from rollout._types import Group, Path
from rollout.collecting._child import Child
from rollout.collecting._program import program
from rollout.collecting._settings import Settings, settings
from rollout.collecting.tasks import Source
from rollout.errors import CollectError, CorruptError, FolderError, ToleranceError
from rollout.runs import _store as store
from rollout.runs.follow import Following
from rollout.runs.log import Check
from rollout.runs.scores import COLLECTED
from rollout.runs.select import Where

try:
    import ray
    from ray.exceptions import ObjectLostError, RayError, RayTaskError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
except ImportError as err:
    raise ImportError("rollout.ray needs Ray on all nodes: pip install ray", name=err.name) from err

log = logging.getLogger("rollout.ray")


def collect(
    config: Path | Mapping[str, Any] | None = None,
    tasks: Iterable[Mapping[str, Any]] | Path | None = None,
    *,
    out: Path,
    workers: int,
    spool: Path,
    partitions: int | None = None,
    server: str | Sequence[str] | None = None,
    model: str | None = None,
    samples: int | None = None,
    flags: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    num_cpus: float = 1,
    resources: Mapping[str, float] | None = None,
    where: Where | None = None,
    columns: Sequence[str] | None = None,
    check: Check = "sha256",
    state: Mapping[str, Any] | None = None,
    timeout: float | None = None,
) -> Groups:
    """Plan a fleet, or join the fleet that out already contains. Start workers, and return the groups.

    config, tasks, server, model, samples, flags: as for rollout.collect. All tasks are read first, so they cannot be
        an async iterable. To join a fleet, pass the same tasks and settings, or none of them. Settings that rows do
        not depend on, such as the servers, can differ. They apply to the workers of this call.
    out: a URL such as s3://bucket/run1, or a folder that all nodes share.
    partitions: the number of partitions; see `rollout plan`.
    workers, spool, env, num_cpus, resources: as for run. With workers=0, only other workers collect.
    where, columns, check: which groups and columns to read, and how to check files, as for rollout.Dataset.
    state: a result of state_dict(). None: the iteration begins with the first group.
    timeout: seconds without a group before TimeoutError; None waits forever.

    Raises FolderError if out contains another run, other tasks or other settings, StateError if the state is from
    another fleet, and the error of `rollout plan` if it fails.
    """
    filepath("out", out)
    if config is not None and not isinstance(config, Mapping):
        filepath("config", config)
        store.local("config", config, "pass the path of a file")
    if not isinstance(server, str):
        texts("server", server, none=True)
    instance("model", model, str, "the handle of a model", none=True)
    for name, value in (("partitions", partitions), ("samples", samples)):
        integer(name, value, 1, none=True)
    instance("where", where, Where, "a rollout.Where", none=True)
    texts("columns", columns, none=True)
    one_of("check", check, ("sha256", "size"))
    instance("state", state, Mapping, "a state from state_dict()", none=True)
    real("timeout", timeout, 0, none=True)
    _check(workers, spool, flags, env, num_cpus, resources)
    url = _absolute(out)
    given = {"server": server, "model": model, "samples": samples}
    how = settings(config, given, flags, env)
    if flags or any(value is not None for value in (config, tasks, partitions, *given.values())):
        _plan(url, how, tasks, partitions)
    fleet = _fleet(url)
    if config is not None and not isinstance(config, Mapping):  # other machines do not have the file
        with open(config, "rb") as file:
            how = replace(settings(None, given, flags, env), body=file.read())
    what: dict[str, Any] = {"where": where, "columns": columns and list(columns), "check": check}
    Following(url, after=state, **what)  # raises StateError
    team = _start(url, fleet, workers, spool, how, num_cpus, resources)
    return Groups(url, team, what, state, timeout)


def run(
    url: Path,
    *,
    workers: int,
    spool: Path,
    flags: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    num_cpus: float = 1,
    resources: Mapping[str, float] | None = None,
) -> Workers:
    """Start actors that run `rollout work` for a planned fleet, and return at once. A second call adds workers.

    url: the URL or the shared folder of the fleet.
    spool: the path of a folder on a local disk of each node, for any number of fleets. Each worker has a subfolder. If
        a worker is killed, the next worker of the fleet on this node continues with its subfolder.
    flags: settings that differ from the plan, such as ["--server=http://10.0.0.7:8283"].
    env: variables that are added to the environment of the processes. They reach the nodes through Ray.
    num_cpus, resources: what each actor reserves on its node. Ray spreads the actors over the nodes. If a node
        dies, its actors start again on any node that has these resources, as soon as there is one.

    Raises FolderError if there is no fleet, and StoreError if the bucket cannot be read.
    """
    filepath("url", url)
    _check(workers, spool, flags, env, num_cpus, resources)
    at = _absolute(url)
    return _start(at, _fleet(at), workers, spool, settings(None, {}, flags, env), num_cpus, resources)


def _absolute(path: Path) -> str:
    """Return a URL, or the absolute path of a folder, because actors have other working directories."""
    return os.fspath(path) if store.remote(path) else os.path.abspath(path)


def _fleet(url: str) -> str:
    """Return the id of a fleet."""
    found = store.fleet(url)
    if found is None:
        store.names(url)  # raises StoreError if there is no bucket
        raise FolderError(f"{url}: no fleet", hint="plan one: pass tasks and settings to rollout.ray.collect, or use `rollout plan`")
    return found.id


def _check(workers: int, spool: Path, flags: object, env: Any, num_cpus: float, resources: object) -> None:
    filepath("spool", spool)
    store.local("spool", spool, "pass a folder on a local disk of each node")
    if not os.path.isabs(spool):
        raise ValueError(f"spool={os.fspath(spool)!r}: must be an absolute path, because it is a folder of other machines")
    integer("workers", workers, 0)
    texts("flags", flags)
    instance("env", env, Mapping, "a dict of strings", none=True)
    texts("env", [*(env or {}).keys(), *(env or {}).values()])
    real("num_cpus", num_cpus, 0)
    instance("resources", resources, Mapping, "a dict of numbers", none=True)


def _start(url: str, fleet: str, workers: int, spool: Path, how: Settings, num_cpus: float, resources: Mapping[str, float] | None) -> Workers:
    actor = ray.remote(
        num_cpus=num_cpus, resources=dict(resources or {}), max_restarts=-1, max_task_retries=-1, max_concurrency=2, scheduling_strategy="SPREAD"
    )(Worker)
    return Workers([actor.remote(url, os.path.join(spool, fleet), how) for _ in range(workers)])


def _plan(url: str, how: Settings, tasks: Iterable[Mapping[str, Any]] | Path | None, partitions: int | None) -> None:
    """Plan a fleet, or check that the existing fleet has these settings and tasks."""
    source = Source(tasks)
    if source.wants_loop:
        raise TypeError("tasks: an async iterable has no end that a plan could wait for: pass a list")
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        given = [] if partitions is None else [f"--partitions={partitions}"]
        if tasks is not None:
            given.append(f"--tasks={file.name}")
            file.writelines(json.dumps(task) + "\n" for task in iter(source.take, None))
        file.flush()
        child = Child([program(), "plan", "--join", f"--out={url}", *given, *how.flags], {**os.environ, **how.env}, how.secrets, how.body)
        child._let_go()  # plan must not wait for tasks from its standard input
        list(child.events())
        if (error := child.error(child.wait())) is not None:
            raise error


@dataclass(frozen=True)
class Reference:
    """A group in Ray's object store. A reference can be passed to any task or actor of the cluster."""

    ref: Any
    """Ray's reference to the rollout.Group. A task that has it as an argument receives the group."""
    id: str
    """The column group_id."""
    partition: int
    """The number of the group's partition among those that have tasks."""
    cursor: Mapping[str, Any]
    """The place after the group in the partition's log: run_id, seq, and the group's number in this commit."""
    run: str
    """The URL or the folder of the fleet."""
    what: Mapping[str, Any]
    """The arguments where, columns and check."""

    def get(self) -> Group:
        """Return the group. If the object is lost, read the group again from the store."""
        try:
            group: Group = ray.get(self.ref)
            return group
        except ObjectLostError:
            return self.read()

    def read(self) -> Group:
        """Read the group from the store."""
        folder, after = store.partitions(self.run)[self.partition], {**self.cursor, "groups": self.cursor["groups"] - 1}
        group = Following(folder, after=after, scores=COLLECTED, **self.what).poll()
        if group is None or group.id != self.id:
            raise CorruptError(f"{folder}: commit {self.cursor['seq']} does not complete the group {self.id!r}")
        return replace(group, run=self.run)


class Workers(contextlib.AbstractContextManager["Workers"]):
    """The workers of run(). They stop when all partitions are complete, at close(), and when their owner ends."""

    def __init__(self, actors: Sequence[Any]) -> None:
        self._runs = [actor.run.remote() for actor in actors]  # of the workers that have not ended
        self._failed: list[Exception] = []
        self._actors = actors
        self._tolerance: ToleranceError | None = None
        self.close = weakref.finalize(self, _close, actors)
        """Stop the workers. In 20 s, they finish samples, and leave the others to other workers."""
        self.close.atexit = False
        atexit.register(self.close)  # runs before Ray's own function, unlike finalizers

    def wait(self, timeout: float | None = None) -> None:
        """Wait until all partitions are complete, or for some seconds. Raises the error of a worker if all workers
        have failed, and ToleranceError if more samples failed than the settings allow."""
        end = None if timeout is None else time.monotonic() + timeout
        while self._runs and (end is None or time.monotonic() < end):
            self.waited(None, end)
        if self._tolerance is not None:
            raise self._tolerance

    def waited(self, ref: Any, end: float | None) -> bool:
        """Wait for a reference, the end of a worker, or a time. Report whether the reference is ready. Raises the
        error of a worker if all workers have failed."""
        left = None if end is None else max(0.0, end - time.monotonic())
        done, _ = ray.wait([*([] if ref is None else [ref]), *self._runs], timeout=left, fetch_local=False)
        for each in set(done) & set(self._runs):
            self._runs.remove(each)
            try:
                _result(each)
            except ToleranceError as err:
                self._tolerance = err
            except Exception as err:
                self._failed.append(err)
                log.warning("%d of %d workers have failed: %s", len(self._failed), len(self._actors), err)
        if ref not in done and self._failed and len(self._failed) == len(self._actors):
            raise self._failed[0]
        return ref in done

    def __exit__(self, *_: object) -> None:
        self.close()


class Groups(contextlib.AbstractContextManager["Groups"], Iterator[Reference]):
    """References to the groups of a fleet, for one consumer. Groups of different partitions come in any order."""

    def __init__(self, url: str, workers: Workers, what: Mapping[str, Any], state: Mapping[str, Any] | None, timeout: float | None) -> None:
        self.run, self.workers = url, workers
        self._what, self._timeout = what, timeout
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        self._reader = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1, scheduling_strategy=here)(Reader).remote(url, what)
        self._asked: Any = None  # the answer of the reader that has not been received
        self._ready: deque[Reference] = deque()
        self._place = list((state or {}).get("partitions") or [None] * len(store.partitions(url)))  # after the last returned reference
        self._end = list(self._place)  # after the last received reference

    def __next__(self) -> Reference:
        """Wait for the next group.

        Raises StopIteration after the last group of all partitions, or ToleranceError if more samples failed than
        the settings allow. Raises the error of a worker if all workers have failed, and TimeoutError after
        `timeout` seconds without a group. The caller can then call again.
        """
        end = None if self._timeout is None else time.monotonic() + self._timeout
        while not self._ready:
            self._asked = self._asked or self._reader.take.remote(self._end)
            if self.workers.waited(self._asked, end):
                asked, self._asked = self._asked, None
                self._ready += (Reference(ref, id, number, cursor, self.run, self._what) for ref, id, number, cursor in _result(asked))
                if not self._ready:
                    self.workers.wait(GRACE)  # a worker of a dead node might never end
                    raise StopIteration
                for each in self._ready:
                    self._end[each.partition] = each.cursor
                self._asked = self._reader.take.remote(self._end)
            elif end is not None and time.monotonic() >= end:
                raise TimeoutError(f"{self.run}: no group for {self._timeout:g} s; `rollout status` shows what is missing")
        next_ = self._ready.popleft()
        self._place[next_.partition] = next_.cursor
        return next_

    def state_dict(self) -> dict[str, Any]:
        """Return the place after the last returned reference, with a cursor for each partition, as a dict of JSON
        values. Each group after a state comes once, in any process."""
        return {"partitions": list(self._place)}

    def close(self) -> None:
        """Stop the reader and the workers; see Workers.close. References remain valid, but are read from the store."""
        with contextlib.suppress(RayError):  # the cluster can be gone
            ray.kill(self._reader)
        self.workers.close()

    def __exit__(self, *_: object) -> None:
        self.close()


def _close(actors: Sequence[Any]) -> None:
    if not ray.is_initialized():  # otherwise the first call would start another cluster
        return
    with contextlib.suppress(RayError):  # the cluster can be gone
        try:
            stopped = [actor.stop.options(max_task_retries=0).remote() for actor in actors]
            ray.wait(stopped, num_returns=len(stopped), timeout=GRACE + 5) if stopped else None
        finally:  # also after a second Ctrl-C
            for actor in actors:
                ray.kill(actor)


def _result(ref: Any) -> Any:
    """Return the result of a call, or raise the error that it raised."""
    try:
        return ray.get(ref)
    except RayTaskError as err:
        raise err.cause from None
    except RayError as err:  # for example, the actor cannot start
        lines = str(err).strip().splitlines()
        raise CollectError(f"Ray: {lines[-1 if 'creation task' in lines[0] else 0].strip()}") from None
