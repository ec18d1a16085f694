"""A collector that stays warm for a training loop: its process, and its groups as they come.

    with rollout.collect("run.yaml", tasks, out="run1", max_ahead=2) as c:
        for group in c:                 # or: async for group in c
            step = train(group)
            c.set_version(step)         # which weights answer from now on

The process is `rollout collect --stream`: it takes tasks as they come, commits a group as
soon as it is whole, and begins no more than max_ahead groups that were not acknowledged.
Groups are read from the log of the run, so nothing is lost or given twice when the process
is killed: it is started again and goes on. When this process is killed the collector stops,
and collect() with the same folder goes on.

A checkpoint holds state_dict(). From a state exactly the groups behind it are given, each
once, acknowledged since or not. Without a state the groups come that were not acknowledged:
those in a trainer's hands when it was killed come again. So a trainer that must see each
group exactly once saves a state before its first group, too.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rollout._args import filepath, flag, instance, integer, one_of, real, texts
from rollout._collection import Ack
from rollout._collection import Collection as Collection
from rollout._cursor import acknowledged, belongs, parse
from rollout._process import distributed as ranks
from rollout._program import program
from rollout._reader import Reader
from rollout._settings import Limits, settings
from rollout._supervisor import Supervisor
from rollout._tasks import Source, Tasks
from rollout.filters import Where
from rollout.log import Check, Path

if TYPE_CHECKING:
    from rollout._distributed import RankedCollection


def collect(
    config: Path | Mapping[str, Any] | None = None,
    tasks: Tasks | Path | None = None,
    *,
    out: Path,
    server: str | Sequence[str] | None = None,
    model: str | None = None,
    samples: int | None = None,
    max_ahead: int | None = None,
    max_lag: int | None = None,
    until_groups: int | None = None,
    min_std: float | None = None,
    flags: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    where: Where | None = None,
    columns: Sequence[str] | None = None,
    check: Check = "sha256",
    state: Mapping[str, Any] | None = None,
    ack: Ack = "auto",
    timeout: float | None = None,
    lock_wait: float = 60,
    restarts: int = 5,
    grace: float = 20,
    distributed: bool | None = None,
) -> Collection | RankedCollection:
    """Start a collector, or go on with the run in out, and return its groups as they come.

    config: a file of settings (YAML, as for `rollout collect -c`), or the settings as a
        dict of sections. A password or a header's value may stand in the dict: it goes to
        the program by its environment, and into no file.
    tasks: an iterable or async iterable of dicts, each a task: prompt or messages, and
        perhaps id, answer, metadata, samples, agent, deadline. It is asked for the next
        one when the collector can begin it. A task without an id gets its number, from 1,
        so the tasks of a run that is continued must be the same, in the same order: those
        that the run has are taken as collected. A path is a file of JSON lines. None: those of
        config, and of add(), until drain().
    out: the folder of the run.
    server, model, samples, max_ahead, max_lag, until_groups, min_std: the flags of
        `rollout collect` of these names. flags: more of them, such as ["--reward=exact"].
    env: what is added to the environment of the program.
    where, columns, check: which groups, which columns and how files are checked, as for
        Dataset. What is left out is acknowledged in its turn; max_ahead does not count it.
    state: what state_dict() gave: go on behind it. None: behind what was acknowledged.
    ack: "auto": asking for the next group acknowledges the one before; or "manual", by ack().
    timeout: seconds without a group after which TimeoutError is raised; None waits for ever.
    lock_wait: seconds to wait for another process to leave the folder, such as the
        collector of a trainer that was killed a moment ago.
    restarts: starts in a row without a new commit, after which a collector that is killed
        or crashes is a CrashError.
    grace: seconds that the process has to end before it is killed.

    distributed: with torch.distributed, rank 0 has the process and every rank gets one
        group of each round, see RankedCollection; all ranks call collect alike. None:
        where it is initialised with more than one rank. False: this process alone.

    Raises FileNotFoundError without a program, and StateError where the state is of another run
    or ahead of the log of this one. What the program refuses is raised where a
    group is asked for: UsageError, ServerError and the other children of CollectError.
    """
    if config is not None and not isinstance(config, Mapping):
        filepath("config", config)
    filepath("out", out)
    one_of("ack", ack, ("auto", "manual"))
    one_of("check", check, ("sha256", "size"))
    instance("where", where, Where, "a rollout.Where", none=True)
    texts("columns", columns, none=True)
    texts("flags", flags)
    instance("state", state, Mapping, "a state from state_dict()", none=True)
    instance("model", model, str, "the handle of a model", none=True)
    if not isinstance(server, str):
        texts("server", server, none=True)
    instance("env", env, Mapping, "a dict of strings", none=True)
    texts("env", [*(env or {}).keys(), *(env or {}).values()])
    for name, value, least in (("samples", samples, 1), ("max_ahead", max_ahead, 0), ("max_lag", max_lag, 0), ("until_groups", until_groups, 0)):
        integer(name, value, least, none=True)
    integer("restarts", restarts, 0)
    real("min_std", min_std, 0, none=True)
    real("timeout", timeout, 0, none=True)
    real("lock_wait", lock_wait, 0)
    real("grace", grace, 0)
    flag("distributed", distributed, none=True)
    given = {
        "server": server,
        "model": model,
        "samples": samples,
        "max-ahead": max_ahead,
        "max-lag": max_lag,
        "until-groups": until_groups,
        "min-std": min_std,
    }
    limits = Limits(restarts, lock_wait, grace)

    def make(ack: Ack, timeout: float | None) -> Collection:
        run = os.path.abspath(os.fspath(out))
        run_id, place = acknowledged(run) if state is None else parse(state)
        belongs(run, run_id, place, "its ack.json" if state is None else "the state")
        reader = Reader(run, run_id, place, where, columns, check)
        source = Source(tasks)
        supervisor = Supervisor(program(), run, settings(config, given, flags, env), source, limits)
        supervisor.words.run_id = run_id
        supervisor.words.acknowledge(place)
        collection = Collection(supervisor, reader, source, place, ack, timeout)
        supervisor.start()
        return collection

    _, world_size = ranks()
    if distributed is False or distributed is None and world_size == 1:
        return make(ack, timeout)
    from rollout._distributed import RankedCollection, enough

    enough(max_ahead or 0, world_size)
    return RankedCollection(lambda: make("manual", None), ack == "auto", timeout, max_ahead)
