"""Measure the reader: its speed compared with Hugging Face datasets, the effect of workers, and
its memory.

    python reader.py --make /tmp/bench        # collects two runs of 335 MB (minutes), then measures
    python reader.py --parquet RUN --arrow RUN [--repeat 3] [--only memory]

Each side of a comparison runs in its own process. The two sides take turns, so that both run
under the same load. The files are in the page cache, and each side reads two epochs. The first
epoch includes opening the files. For rollout, it also includes verifying the checksum of every
file. Seconds are from the fastest turn and exclude imports. CPU time is from the second epoch and
includes the workers. A ratio is the wall time of the other side divided by the wall time of
rollout. On a busy machine, compare the CPU times.

Both sides produce tensors, and the benchmark reads one number per 4 KiB. So every page is loaded,
but the work that a training step would do is not measured. Both sides read in file order, or both
shuffle. Streaming is the exception, because it can shuffle only a buffer of rows. It reads in
order and is compared with shuffled groups.
"""

from __future__ import annotations

import argparse
import glob
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

COLUMNS = ["sample_key", "group_id", "sample_index", "segment_index", "group_size", "prompt_length", "input_ids", "loss_mask", "logprobs", "reward"]
GROUPS = 8
WIDTH = 55


def tensors(batch: Any) -> int:
    """Convert every array in a batch to a tensor, as the other side does, and read from each
    tensor."""
    import numpy as np
    import torch

    n = 0
    for group in batch:
        for row in group.rows:
            made = {k: torch.from_numpy(v) if isinstance(v, np.ndarray) else v for k, v in row.items()}
            n += touch(made)
    return n


def touch(row: Any) -> int:
    """Read one number per page of a row's long columns, and return the number of tokens in the
    row."""
    for name in ("input_ids", "loss_mask", "logprobs"):
        row[name][:: 4096 // row[name].element_size()].sum()
    return len(row["input_ids"])


class Slow:
    """A collate function that uses an additional 5 ms of CPU time."""

    def __init__(self, collate: Callable[[Any], Any]) -> None:
        self.collate = collate

    def __call__(self, groups: Any) -> Any:
        end = time.perf_counter() + 0.005
        while time.perf_counter() < end:
            pass
        return self.collate(groups)


def ours(run: str, workers: int, collate: str, shuffle: bool = True) -> Iterator[int]:
    """Read epochs of batches. Yield 0 before the first epoch, and the number of tokens after each
    epoch."""
    import rollout

    how = {"none": None, "padded": rollout.collate.padded(0), "slow": Slow(rollout.collate.padded(0))}[collate]
    yield 0
    loader = rollout.DataLoader(rollout.Dataset(run, columns=COLUMNS).batches(GROUPS, fill="repeat", shuffle=shuffle, collate=how), num_workers=workers)
    while True:
        yield sum(tensors(batch) if how is None else int(batch["tokens"].sum()) for batch in loader)


def streaming(run: str) -> Iterator[int]:
    """Read the Parquet files with Hugging Face streaming in torch format."""
    from datasets import load_dataset

    yield 0
    files = sorted(glob.glob(os.path.join(run, "data", "*.parquet")))
    ds = load_dataset("parquet", data_files=files, split="train", streaming=True).select_columns(COLUMNS).with_format("torch")
    while True:
        yield sum(touch(row) for row in ds)


def cached(run: str, cache: str, shuffle: bool) -> Iterator[int]:
    """Read the Arrow cache of Hugging Face datasets in torch format."""
    from datasets import load_dataset

    files = sorted(glob.glob(os.path.join(run, "data", "*.parquet")))
    yield 0
    ds = load_dataset("parquet", data_files=files, split="train", cache_dir=cache).select_columns(COLUMNS)
    ds = (ds.shuffle(seed=0) if shuffle else ds).with_format("torch")
    while True:
        yield sum(touch(row) for row in ds)


def load(run: str, cache: str) -> None:
    """Read the files of one side to load them into the page cache."""
    for path in glob.glob(os.path.join(cache, "**/*.arrow"), recursive=True) if cache else glob.glob(os.path.join(run, "data", "*")):
        with open(path, "rb") as f:
            while f.read(1 << 20):
                pass


def pss(pid: int) -> int:
    """Return the proportional set size (PSS) of a process and its descendants, in bytes."""
    total = 0
    try:
        with open(f"/proc/{pid}/smaps_rollup") as f:
            total = next(int(line.split()[1]) * 1024 for line in f if line.startswith("Pss:"))
        with open(f"/proc/{pid}/task/{pid}/children") as f:
            children = f.read().split()
    except (OSError, StopIteration):
        return total
    return total + sum(pss(int(child)) for child in children)


class Peak:
    """Samples the memory of this process and its children often, to find the peak."""

    def __init__(self) -> None:
        self.most, self._stop = 0, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        while not self._stop.wait(0.02):
            self.most = max(self.most, pss(os.getpid()))

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def child(spec: dict[str, Any]) -> None:
    """Run one measurement and print it."""
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # tensors of read-only arrays are only read here
    base = pss(os.getpid())
    memory = spec.pop("memory", False)
    made = {"ours": ours, "streaming": streaming, "cached": cached}[spec.pop("side")](**spec)
    if memory:
        with Peak() as peak:
            next(made), next(made)
        print(json.dumps({"bytes": peak.most - base}))
        return
    next(made)
    load(spec["run"], spec.get("cache", ""))
    epochs = []
    for _ in range(2):
        before, wall = os.times(), time.perf_counter()
        tokens = next(made)
        wall, after = time.perf_counter() - wall, os.times()
        epochs.append({"tokens": tokens, "wall": wall, "cpu": sum(after[:4]) - sum(before[:4])})
    print(json.dumps(epochs))


def measure(spec: dict[str, Any]) -> Any:
    """Run one measurement in its own process."""
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1"}
    out = subprocess.run([sys.executable, __file__, "--child", json.dumps(spec)], env=env, stdout=subprocess.PIPE, check=True).stdout
    return json.loads(out.splitlines()[-1])


def compare(name: str, goal: float, other: dict[str, Any], own: dict[str, Any], repeat: int) -> None:
    """Measure two sides in turns and print a line of the table."""
    got: list[list[Any]] = [[], []]
    for _ in range(repeat):
        for side, spec in enumerate((other, own)):
            got[side].append(measure(spec))
    first, second, cpu = ([min(r[epoch][what] for r in side) for side in got] for epoch, what in ((0, "wall"), (1, "wall"), (1, "cpu")))
    numbers = [*first, first[0] / first[1], *second, second[0] / second[1], *cpu]
    print(f"{name:{WIDTH}}", *(f"{x:7.2f}" for x in numbers), f"{goal:5.1f}", flush=True)


def make(folder: str, megabytes: int) -> tuple[str, str]:
    """Collect the same tasks as Parquet and as Arrow, and return the folders."""
    os.makedirs(folder, exist_ok=True)
    ready, tasks = os.path.join(folder, "ready"), os.path.join(folder, "tasks.jsonl")
    runs = os.path.join(folder, "parquet"), os.path.join(folder, "arrow")
    flags = ["--input-ids", "--scripted", str(megabytes * 9 // 2), "--drift", "0.1", "--tokens", "2000,12000"]
    server = subprocess.Popen(["rollout", "simulate", "--listen", "127.0.0.1:0", "--ready-file", ready, "--write-tasks", tasks, *flags])
    try:
        while not os.path.exists(ready):
            time.sleep(0.05)
        with open(ready) as f:
            url = f.read().strip()
        for run in runs:
            given = ["--server", url, "--model", "sglang//models/qwen3", "--tasks", tasks, "--samples", "8", "--max-in-flight", "64"]
            command = ["rollout", "collect", "--quiet", "--reward", "number", "--format", os.path.basename(run), "--out", run, *given]
            subprocess.run(command, check=True)
    finally:
        server.kill()
        server.wait()
    return runs


def main() -> None:
    """Measure everything and print the table."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--parquet", help="a run's folder with Parquet shards")
    p.add_argument("--arrow", help="a run's folder with Arrow shards of the same tasks")
    p.add_argument("--make", metavar="FOLDER", help="collect both runs there first")
    p.add_argument("--megabytes", type=int, default=335, help="of the Parquet run that --make collects")
    p.add_argument("--repeat", type=int, default=3, help="turns of each side")
    p.add_argument("--only", default="", help="a part of the names of the lines to measure")
    p.add_argument("--child", help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.child:
        child(json.loads(args.child))
        return
    if args.make:
        args.parquet, args.arrow = make(args.make, args.megabytes)
    if not args.parquet or not args.arrow:
        p.error("give --parquet and --arrow, or --make")

    def own(run: str, workers: int = 0, collate: str = "none", shuffle: bool = True) -> dict[str, Any]:
        return {"side": "ours", "run": run, "workers": workers, "collate": collate, "shuffle": shuffle}

    with tempfile.TemporaryDirectory() as cache:
        hf = {"side": "cached", "run": args.parquet, "cache": cache}
        lines = [
            ("parquet: HF streaming, torch format / batches", 2.0, {"side": "streaming", "run": args.parquet}, own(args.parquet)),
            ("arrow, in order: HF cache, with_format torch / batches", 5.0, {**hf, "shuffle": False}, own(args.arrow, shuffle=False)),
            ("arrow, shuffled: HF cache, with_format torch / batches", 5.0, {**hf, "shuffle": True}, own(args.arrow)),
            ("parquet: 0 workers / 2", 0.9, own(args.parquet), own(args.parquet, 2)),
            ("arrow: 0 workers / 2", 0.9, own(args.arrow), own(args.arrow, 2)),
            ("parquet, padded: 0 workers / 2", 0.9, own(args.parquet, 0, "padded"), own(args.parquet, 2, "padded")),
            ("parquet, padded, 5 ms more in collate: 0 workers / 2", 1.3, own(args.parquet, 0, "slow"), own(args.parquet, 2, "slow")),
            ("arrow, padded, 5 ms more in collate: 0 workers / 2", 1.3, own(args.arrow, 0, "slow"), own(args.arrow, 2, "slow")),
        ]
        print(f"{'':{WIDTH}} {'first epoch, opening':>23} {'second epoch':>23} {'its cpu':>15}")
        print(f"{'other side / rollout':{WIDTH}}", *(f"{x:>7}" for x in (*("other", "ours", "ratio") * 2, "other", "ours")), f"{'goal':>5}")
        for name, goal, other, mine in lines:
            if args.only in name:
                if other["side"] == "cached":
                    measure(other)  # writes the cache
                compare(name, goal, other, mine, args.repeat)
        print(f"\n{'memory beyond import torch':{WIDTH}} {'MB':>7} {'goal':>7}")
        for run, fmt in ((args.parquet, "parquet"), (args.arrow, "arrow")):
            for workers in (0, 2):
                name = f"memory: {fmt}, {workers} workers"
                if args.only in name:
                    got = measure({**own(run, workers), "memory": True})
                    print(f"{name:{WIDTH}} {got['bytes'] / 1e6:7.0f} {200:7.0f}", flush=True)


if __name__ == "__main__":
    main()
