"""Batches of whole groups for one rank, with any number of workers and a state that can be saved."""

from __future__ import annotations

import gc
import importlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from rollout._args import flag, function, integer, one_of
from rollout._arrays import Ints
from rollout._process import distributed, not_alone, worker
from rollout._types import Group
from rollout.data import order as orders
from rollout.data.ship import Shipment
from rollout.data.stream import blocks, first_blocks, stream
from rollout.errors import StateError
from rollout.runs._shardfile import decode_small
from rollout.runs.follow import Following
from rollout.runs.select import GROUP_REASONS, SAMPLE_REASONS, Counts, Selection, Where

torch: Any = None
try:
    torch = importlib.import_module("torch")
    Base: Any = torch.utils.data.IterableDataset
except ImportError:  # without torch, Batches is a plain iterable
    Base = object

STATE_VERSION = 1
BYTES_PER_TOKEN = 10
"""The approximate number of bytes per token in a decoded row: 4 for the id, 4 for the
log-probability, 1 for the mask, and 1 for all other columns."""


class Source(Protocol):
    """The methods of a Dataset that Batches uses."""

    runs: list[str]
    where: Where
    follow: bool

    @property
    def fleet(self) -> bool: ...

    @property
    def selection(self) -> Selection: ...

    @property
    def counts(self) -> Counts: ...

    @property
    def snapshot(self) -> list[dict[str, Any]]: ...

    def at(self, snapshot: Sequence[dict[str, Any]]) -> Source: ...

    def following(self, **options: Any) -> Following: ...


class Batches(Base):  # type: ignore[misc]
    """The batches of one rank: lists of Group, or the results of collate.

    Dataset.batches creates this object, which is a torch IterableDataset. Batches come from

        DataLoader(batches, batch_size=None, num_workers=W)

    in the same order for every W. Every rank has len(batches) batches with the same number of
    groups. Ranks do not share groups, except groups that fill="repeat" repeats.

    set_epoch selects the order of the next iteration. state_dict returns the progress of this
    object's iteration, and load_state_dict makes the next iteration continue from there. If a
    DataLoader has workers, they iterate over copies of this object. So save the state of
    rollout.DataLoader instead, which has the same form. If you use torch's own DataLoader with
    workers, call set_epoch or load_state_dict before each pass. Otherwise, every pass after a
    load_state_dict starts at the batch of the loaded state. Pass batch_size=None, because the
    items are already batches. torchdata's StatefulDataLoader also works if the number of workers
    stays the same.
    """

    def __init__(
        self,
        ds: Source,
        groups: int,
        *,
        seed: int,
        epoch: int,
        shuffle: bool,
        rank: int | None,
        world_size: int | None,
        fill: orders.Fill,
        collate: Callable[[list[Group]], Any] | None,
        lanes: int | None,
    ) -> None:
        integer("groups", groups, 1)
        integer("seed", seed)
        integer("epoch", epoch)
        integer("rank", rank, 0, none=True)
        integer("world_size", world_size, 1, none=True)
        integer("lanes", lanes, 1, none=True)
        flag("shuffle", shuffle)
        function("collate", collate, none=True)
        one_of("fill", fill, ("drop", "repeat"))
        if (rank is None) != (world_size is None):
            raise ValueError("set both rank and world_size, or neither")
        if rank is None or world_size is None:
            rank, world_size = distributed()
        if not 0 <= rank < world_size:
            raise ValueError(f"rank={rank}, world_size={world_size}: rank must be 0 to world_size - 1")
        self.dataset: Source = ds
        self.collate, self.rank = collate, rank
        self.groups, self.world_size, self.fill = groups, world_size, fill
        self.seed, self.shuffle, self._lanes = seed, shuffle, lanes
        self._next = 0  # the next batch of this rank
        self._pending = 0  # the batch at which the next iteration starts
        self._local: tuple[int, int] | None = None  # in a worker: a loaded state
        self._cursor: dict[str, Any] | None = None  # for a followed fleet: the place after the last batch
        # The epoch and the first batch of its iteration. They are in shared memory, because
        # workers can outlive an epoch.
        self._control = shared(np.array([epoch, 0], dtype=np.int64))
        self._tally = Tally(shared)
        self._prepare()

    def _prepare(self) -> None:
        ds = self.dataset
        if ds.follow:
            return
        groups = len(ds.selection)
        by = blocks(ds.selection) if self.shuffle else None
        self._home = first_blocks(ds.selection) if by is None else by.home
        if by is None:
            number = 1
        elif self._lanes is not None:
            number = self._lanes
        else:
            number = orders.lanes(by.number, BYTES_PER_TOKEN * by.tokens // max(1, by.number), self.world_size)
        self.deal = orders.Deal(self.groups, self.world_size, number, self.fill, groups)
        if not self.deal.batches:
            raise ValueError(
                f"a batch on each rank needs {self.world_size} × {self.groups} groups (ranks × groups), but only {groups} remain: lower groups=, "
                "or pass fill='repeat'"
                if groups
                else f"no groups remain from {', '.join(ds.runs)} (dropped: {json.dumps(ds.counts)})"
            )

    def __len__(self) -> int:
        """The number of batches in an epoch, the same on every rank."""
        if self.dataset.follow:
            raise TypeError("the number of batches of a followed run is unknown")
        return self.deal.batches

    @property
    def epoch(self) -> int:
        """The epoch of the next iteration."""
        return int(self._control[0])

    @property
    def counts(self) -> Counts:
        """The numbers of groups, samples and rows that the filters dropped, by reason.

        The value is the same as Dataset.counts, except for a followed run. For a followed run,
        the numbers cover the last iteration so far, starting with the run's first commit; see
        Following for the reasons. The numbers come from the first worker, which might have read
        ahead. Groups that fill drops or repeats are counted by the properties dropped and
        repeated instead.
        """
        return self._tally.read().counts if self.dataset.follow else self.dataset.counts

    @property
    def dropped(self) -> int:
        """The number of groups per epoch that fill="drop" drops, over all ranks.

        For a followed run, this is the number for the last iteration. Raises TypeError until that
        iteration has ended.
        """
        return self._ended().dropped if self.dataset.follow else self.deal.dropped

    @property
    def repeated(self) -> int:
        """The number of groups per epoch that fill="repeat" repeats, over all ranks. For a
        followed run, see the property dropped."""
        return self._ended().repeated if self.dataset.follow else self.deal.repeated

    def _ended(self) -> State:
        state = self._tally.read()
        if not state.ended:
            raise TypeError("the dropped and repeated groups of a followed run are unknown until the iteration ends")
        return state

    def set_epoch(self, epoch: int) -> None:
        """Select the order of the next iteration. The iteration starts at the first batch, unless a
        state for this epoch has been loaded but not yet used."""
        integer("epoch", epoch)
        if epoch != self.epoch:
            self._control[0] = epoch
            self.begin_at(0)

    def begin_at(self, batch: int) -> None:
        """Make the next iteration start at a batch of this rank."""
        self._control[1] = self._pending = self._next = batch

    def begin(self) -> int:
        """Start an iteration, in workers or in this process. Return the number of its first
        batch."""
        first, self._pending = self._pending, 0
        self._control[1] = self._next = first
        return first

    def delivered(self) -> None:
        """Count one more batch as delivered by the workers."""
        self._next += 1

    def __iter__(self) -> Iterator[Any]:
        here = worker()
        number, workers = here or (0, 1)
        if here is not None:
            # Exclude inherited objects from garbage collection. A collection would write to every
            # page, so each worker would get a copy of the page.
            gc.freeze()
            decode_small()
        begin = int(self._control[1])
        start = begin
        if self._local is not None:
            (begin, start), self._local = self._local, None
        elif here is None:
            self._control[1] = self._pending = 0
            self._next = begin
        for j, batch in self._from(begin + number, workers, start):
            self._next = j + workers
            if self.collate is not None:
                yield self.collate(batch)
            else:
                yield batch if here is None else Shipment(batch, None if self.dataset.follow else self.dataset.selection.files)

    def _from(self, first: int, step: int, start: int) -> Iterator[tuple[int, list[Group]]]:
        """Yield this rank's batches with the numbers first, first + step, …, and skip all batches
        before the batch `start`."""
        if self.dataset.follow:
            yield from self._followed(first, step, start)
            return
        selection, deal = self.dataset.selection, self.deal
        order: Ints = np.arange(len(selection))
        self.verify()
        if self.shuffle:
            order = orders.shuffled(len(selection), self.seed, self.epoch, self._home)
        todo = [j for j in range(first, deal.batches, step) if j >= start]
        if deal.lanes == 1 and (self._home is None or not self.shuffle):
            yield from zip(todo, stream(selection, deal.in_turn(self.rank, order)[todo], self._home), strict=True)
            return
        streams: dict[int, Iterator[list[Group]]] = {}
        for lane in range(deal.lanes):
            places = [j // deal.lanes for j in todo if j % deal.lanes == lane]
            if places:
                streams[lane] = stream(selection, deal.lane(self.rank, lane, order)[places], self._home)
        for j in todo:
            yield j, next(streams[j % deal.lanes])

    def verify(self) -> None:
        """If the first batches need all files, verify them here, so that the workers do not
        verify them again."""
        if self.shuffle and not self.dataset.follow and self._home is None:
            self.dataset.selection.files.verify_mapped()

    def _followed(self, first: int, step: int, start: int) -> Iterator[tuple[int, list[Group]]]:
        """Yield batches as their groups become complete. A round of batches, one for each rank,
        becomes available at the same time."""
        g, world = self.groups, self.world_size
        alone, first_of_all = not_alone(), (worker() or (0, 1))[0] == 0

        def tell(**end: Any) -> None:
            if first_of_all:  # every worker follows the whole log
                self._tally.write(follow.counts, **end)

        def idle(waited: float) -> None:
            tell()
            alone(waited)

        fleet = self.dataset.fleet
        if fleet and (world > 1 or worker() is not None):
            raise ValueError("follow=True for a fleet needs one rank and num_workers=0: the order of groups from several partitions "
                             "differs between processes. Pass the groups of one process to the others, or give each process its own partitions")
        follow = self.dataset.following(idle=idle, **({"after": self._cursor} if fleet and start else {}))
        tell()
        had = []
        j = start if fleet else 0
        for found in follow.complete():
            had.append(found)
            if len(had) == g * world:
                tell()
                self._cursor = follow.cursor if fleet else None
                if j >= start and j >= first and (j - first) % step == 0:
                    yield j, [follow.read(f) for f in had[self.rank * g : (self.rank + 1) * g]]
                had, j = [], j + 1
        again = self.fill == "repeat"
        tell(ended=True, dropped=0 if again else len(had), repeated=g * world - len(had) if again and had else 0)
        if had and again and j >= start and j >= first and (j - first) % step == 0:
            full = [had[i % len(had)] for i in range(g * world)]
            yield j, [follow.read(f) for f in full[self.rank * g : (self.rank + 1) * g]]

    def settings(self) -> dict[str, Any]:
        """The settings that determine the order, together with the epoch and the log."""
        ds = self.dataset
        lanes = {} if ds.follow else {"lanes": self.deal.lanes}
        said = {"groups": self.groups, "seed": self.seed, "shuffle": self.shuffle, "world_size": self.world_size, "fill": self.fill}
        return {**said, **lanes, "follow": ds.follow, "where": ds.where.name()}

    def state_dict(self) -> dict[str, Any]:
        """Return the progress of the iteration, as a dict of JSON values."""
        here = worker()
        return {
            "version": STATE_VERSION,
            "epoch": self.epoch,
            "next": self._next,
            "begin": int(self._control[1]) if here else self._next,
            "worker": list(here or (0, 1)),
            "rank": self.rank,
            "snapshot": self.dataset.snapshot,
            "settings": self.settings(),
            **({"cursor": self._cursor} if self._cursor else {}),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Make the next iteration continue where the state was saved.

        If the runs have grown since the state was saved, this object uses only the groups that
        existed then. Raises StateError if the state was saved with other runs, settings or
        filters, or with another number of ranks.
        """
        try:
            version, epoch, place, begin = (int(state[k]) for k in ("version", "epoch", "next", "begin"))
            number, workers = map(int, state["worker"])
            settings, snapshot = dict(state["settings"]), list(state["snapshot"])
            rank = int(state["rank"])
        except (KeyError, TypeError, ValueError, AttributeError) as err:
            raise StateError(f"the state is not from rollout.Batches: {err!r}") from err
        if version != STATE_VERSION:
            raise StateError(f"the state has version {version}, but this program supports version {STATE_VERSION}: use the version of rollout-rl that saved it")
        here = worker()
        if workers > 1 and here != (number, workers):
            raise StateError(f"the state is from worker {number} of {workers}: save the state of rollout.DataLoader, which works with any number of workers")
        if rank != self.rank:
            raise StateError(f"the state is from rank {rank}, but this is rank {self.rank}: every rank must save and load its own state")
        if settings.get("follow") != self.dataset.follow:
            raise StateError(
                f"the state was saved with follow={settings.get('follow')!r}, but this dataset has follow={self.dataset.follow}: create the dataset as before"
            )
        ds = self.dataset.at(snapshot)
        if ds is not self.dataset:
            self.dataset = ds
            self._prepare()
        for name, value in self.settings().items():
            if settings.get(name) != value:
                raise StateError(f"the state was saved with {name}={settings.get(name)!r}, but these batches have {name}={value!r}: "
                                 "create the batches as before")
        self._control[0] = epoch
        self._cursor = state.get("cursor")
        if here and workers > 1:
            self._local, self._next = (begin, place), place
        else:
            self.begin_at(place)


class DataLoader:
    """A torch DataLoader for Batches that counts the delivered batches.

    So state_dict and load_state_dict work in the middle of an epoch, even if the number of
    workers changes. Batches that workers have read ahead but not delivered are reread. The
    options are the same as for torch.utils.data.DataLoader, except options such as batch_size and
    shuffle, which Batches determines. Without torch, num_workers must be 0.
    """

    def __init__(self, batches: Batches, num_workers: int = 0, **options: Any) -> None:
        if not isinstance(batches, Batches):
            raise TypeError(f"batches: must be a rollout.Batches, such as dataset.batches(groups=8), not {type(batches).__name__}")
        for name in ("batch_size", "shuffle", "sampler", "batch_sampler", "drop_last"):
            if name in options:
                raise TypeError(f"{name}: set it in Dataset.batches instead")
        integer("num_workers", num_workers, 0)
        if torch is None and (num_workers or options):
            raise ImportError("num_workers and other options need torch: install torch, or pass num_workers=0 without options")
        self.batches, self._workers = batches, num_workers
        options.setdefault("collate_fn", identity)
        self._options = options
        self._loader = self._make()

    def _make(self) -> Any:
        if torch is None:
            return self.batches
        return torch.utils.data.DataLoader(self.batches, batch_size=None, num_workers=self._workers, **self._options)

    def __len__(self) -> int:
        """The number of batches in an epoch, the same on every rank."""
        return len(self.batches)

    def __iter__(self) -> Iterator[Any]:
        self.batches.begin()
        if self._workers:
            self.batches.verify()
            for batch in self._loader:
                self.batches.delivered()
                yield batch
        else:  # batches without workers count themselves
            yield from self._loader

    def set_epoch(self, epoch: int) -> None:
        """Select the order of the next iteration; see Batches.set_epoch."""
        self.batches.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return the progress of the epoch as a dict of JSON values. It covers the delivered
        batches."""
        return self.batches.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Make the next iteration continue where the state was saved; see Batches."""
        before = self.batches.dataset
        self.batches.load_state_dict(state)
        if self.batches.dataset is not before:  # persistent workers have the old dataset
            self._loader = self._make()


def shared(array: Ints) -> Any:
    """If torch is installed, copy the array into memory that is shared with worker processes."""
    return array if torch is None else torch.from_numpy(array).share_memory_()


def identity(batch: Any) -> Any:
    """A collate_fn that returns the batch unchanged, so that torch does not convert its
    values."""
    return batch


REASONS = (*SAMPLE_REASONS, *GROUP_REASONS, "late")
UNITS = ("groups", "samples", "rows")


@dataclass(frozen=True)
class State:
    """What is known about an iteration so far."""

    counts: Counts
    ended: bool
    """True if the run has ended, so the numbers cover the whole iteration."""
    dropped: int
    repeated: int


class Tally:
    """A table of counts that the iterating process writes and other processes read.

    `share` is a function that copies an array into shared memory. A read during a write can
    return a mixture of old and new numbers. This does no harm, because the numbers of an
    iteration only grow.
    """

    def __init__(self, share: Callable[[Ints], Any]) -> None:
        # First the counts, ordered by REASONS and UNITS, then dropped, repeated, and 1 if the run
        # has ended.
        self._table = share(np.zeros(len(REASONS) * len(UNITS) + 3, dtype=np.int64))

    def write(self, counts: Counts, ended: bool = False, dropped: int = 0, repeated: int = 0) -> None:
        table = np.asarray(self._table)
        table[-1] = 0
        table[:-1] = [*(counts.get(reason, {}).get(unit, 0) for reason in REASONS for unit in UNITS), dropped, repeated]
        table[-1] = ended

    def read(self) -> State:
        table = np.asarray(self._table)
        ended = bool(table[-1])  # read before the numbers, so that these are at least as new
        by_reason = zip(REASONS, table[:-3].reshape(-1, len(UNITS)).tolist(), strict=True)
        counts = {reason: dict(zip(UNITS, numbers, strict=True)) for reason, numbers in by_reason if any(numbers)}
        return State(counts, ended, int(table[-3]), int(table[-2]))
