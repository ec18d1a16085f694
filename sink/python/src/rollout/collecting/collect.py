"""A collector that keeps running for a training loop, and its groups as they are committed.

    with rollout.collect("run.yaml", tasks, out="run1", max_ahead=2) as c:
        for group in c:                 # or: async for group in c
            step = train(group)
            c.set_version(step)         # the engines sample with these weights from now on

The collector is the process `rollout collect --stream`. It accepts tasks while it runs, commits a
group as soon as the group is whole, and starts a new group if fewer than max_ahead groups have
been started but not yet acknowledged. Groups are read from the run's log. So if the collector is
killed, it is restarted, and no group is lost or returned twice. If the trainer is killed, the
collector stops, and collect() with the same folder resumes the run.

A checkpoint should contain state_dict(). If collect() gets a state, each group after the state is
returned exactly once, even if the group was acknowledged later. If not, the groups that were
never acknowledged are returned, including groups that a killed trainer was still using. So a
trainer that must receive each group exactly once must also save a state before its first group.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from rollout._args import filepath, flag, instance, integer, one_of, real, texts
from rollout._process import distributed as ranks
from rollout._types import Path
from rollout.collecting._program import program
from rollout.collecting._settings import Limits, settings
from rollout.collecting.collection import Ack, Collection, Reader
from rollout.collecting.distributed import RankedCollection, enough
from rollout.collecting.merged import Merged, folders
from rollout.collecting.supervisor import Supervisor
from rollout.collecting.tasks import Source, Tasks
from rollout.collecting.workers import Workers
from rollout.runs._store import local
from rollout.runs.log import Check
from rollout.runs.select import Where


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
    workers: int = 1,
    state: Mapping[str, Any] | None = None,
    ack: Ack = "auto",
    timeout: float | None = None,
    lock_wait: float = 60,
    restarts: int = 5,
    grace: float = 20,
    distributed: bool | None = None,
) -> Collection | RankedCollection:
    """Start a collector, or resume the run in out, and return its groups as they are committed.

    config: a settings file (YAML, as for `rollout collect -c`), or the settings as a dict of
        sections. If the dict contains a secret, this secret is passed to the program in the
        environment and is not written to a file. Secrets are passwords, tokens, header values, and
        the variables in harness.env whose names end in TOKEN, API_KEY or the like.
    tasks: an iterable or async iterable of task dicts: prompt or messages, and optionally id,
        answer, metadata, samples, agent, deadline. A task of a harness has one message. The next
        task is requested when the collector can start it. If a task has no id, its number, counted
        from 1, becomes its id. A resumed run then needs the same tasks in the same order. Tasks
        that the run already contains are not collected again. If tasks is a path, it names a JSON
        Lines file. If tasks is None, the tasks come from config and from calls of add() before
        drain().
    out: the folder of the run. A run in a bucket is a fleet; see rollout.ray.collect.
    server, model, samples, max_ahead, max_lag, until_groups, min_std: the flags of `rollout
        collect` with these names. flags: more flags, such as ["--reward=exact"].
    env: variables that are added to the environment of the program.
    where, columns, check: which groups and columns to read, and how to check files, as for
        Dataset. Groups that the filters drop are acknowledged in order, and max_ahead does not
        count them.
    workers: the number of collectors. Each collector has its own run, such as out/0000-of-0002, and
        collects the tasks that a hash of the task id selects. All groups come in one iteration.
        max_ahead, max_lag, until_groups, versions, pauses and acknowledgements apply to all
        collectors together. Other limits, such as server.max_in_flight and run.fail_on_error, apply
        to each collector. Up to 8 tasks are requested for each collector before it can start them.
        The tasks must come from tasks or add(). A run can be resumed only with the same number of
        workers.
    state: a result of state_dict(). The iteration continues after this state. None: the iteration
        continues after the acknowledged groups.
    ack: "auto": requesting the next group acknowledges the previous group. "manual": only ack()
        acknowledges groups.
    timeout: seconds without a group before TimeoutError; None waits forever.
    lock_wait: seconds to wait for another process to release the folder. For example, the
        collector of a trainer that was just killed can still be running.
    restarts: how many times the collector is restarted after a crash or a kill without a new
        commit in between. After that, CrashError is raised.
    grace: seconds for the process to end before it is killed.
    distributed: True: rank 0 of torch.distributed runs the collector, and every rank gets one
        group per round (see RankedCollection). All ranks must call collect with the same
        arguments. False: this process collects alone. None: True if torch.distributed is
        initialized with more than one rank, otherwise False.

    Raises FileNotFoundError if the program is not found, StateError if the state is from another
    run or ahead of this run's log, and FolderError if the run has another number of workers or the
    folder contains a fleet. If the program fails, the next request for a group raises the error:
    UsageError, ServerError or another subclass of CollectError.
    """
    if config is not None and not isinstance(config, Mapping):
        filepath("config", config)
        local("config", config, "pass the path of a file")
    filepath("out", out)
    local("out", out, "pass a folder; to collect into a bucket, use rollout.ray.collect or `rollout plan` and `rollout work`")
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
    integer("workers", workers, 1)
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
        runs = folders(run, workers)
        reader: Any = Reader(run, state, where, columns, check) if workers == 1 else Merged(runs, state, where, columns, check)
        source = Source(tasks)
        how = (settings(config, given, flags, env), source, limits)
        supervisor: Any = Supervisor(program(), run, *how) if workers == 1 else Workers(program(), run, runs, *how)
        supervisor.commands.run_id = reader.run_id
        supervisor.commands.acknowledge(reader.end)
        collection = Collection(supervisor, reader, source, ack, timeout)
        supervisor.start()
        return collection

    _, world_size = ranks()
    if distributed is False or distributed is None and world_size == 1:
        return make(ack, timeout)
    enough(max_ahead or 0, world_size)
    return RankedCollection(lambda: make("manual", None), ack == "auto", timeout, max_ahead)
