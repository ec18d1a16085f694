"""Reads what the experiment trackers stored, with their own code. Each needs its tracker (.ci/trackers.sh)."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Stored = tuple[dict[str, dict[int, float]], dict[int, str]]
"""What a tracker stored of a run: numbers by name and step, and examples by step."""


def stored(name: str, folder: Path) -> dict[str, Stored]:
    """Return what a tracker stored, by the name of the run. The tracker's own code reads it."""
    return {"wandb": stored_by_wandb, "trackio": stored_by_trackio, "tensorboard": stored_by_tensorboard, "mlflow": stored_by_mlflow}[name](folder)


def stored_by_wandb(folder: Path) -> dict[str, Stored]:
    found: dict[str, Stored] = {}
    for place in sorted(folder.glob("wandb/offline-run-*")):
        (file,) = place.glob("*.wandb")
        records = list(wandb_records(file))
        numbers, examples = found.setdefault(next(r.run.display_name for r in records if r.run.display_name), ({}, {}))
        for record in records:
            for item in record.history.item:
                key, value = item.key or ".".join(item.nested_key), json.loads(item.value_json)
                if key == "example.path":
                    ((step, text),) = json.loads((place / "files" / value).read_bytes())["data"]
                    add(examples, step, text)
                elif not key.startswith(("_", "example.")):
                    add(numbers.setdefault(key, {}), record.history.step.num, value)
    return found


def stored_by_trackio(folder: Path) -> dict[str, Stored]:
    from trackio.sqlite_storage import SQLiteStorage  # trackio.Api lists runs and reads no numbers

    found: dict[str, Stored] = {}
    for run in SQLiteStorage.get_runs("rollout"):
        numbers, examples = found.setdefault(run, ({}, {}))
        for record in SQLiteStorage.get_logs("rollout", run):
            for key, value in record.items():
                if key == "example":
                    add(examples, record["step"], value["_value"])
                elif "/" in key or key == "policy_version":
                    add(numbers.setdefault(key, {}), record["step"], value)
    return found


def stored_by_tensorboard(folder: Path) -> dict[str, Stored]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found: dict[str, Stored] = {}
    for place in (folder / "rollout").iterdir():
        events = EventAccumulator(str(place), size_guidance={"scalars": 0, "tensors": 0})
        events.Reload()
        numbers, examples = found.setdefault(place.name, ({}, {}))
        for key in events.Tags()["scalars"]:
            for event in events.Scalars(key):
                add(numbers.setdefault(key, {}), event.step, event.value)
        for event in events.Tensors("example/text_summary"):
            add(examples, event.step, event.tensor_proto.string_val[0].decode())
    return found


def stored_by_mlflow(folder: Path) -> dict[str, Stored]:
    import mlflow

    client = mlflow.MlflowClient(f"sqlite:///{folder}/mlflow.db")
    found: dict[str, Stored] = {}
    for run in client.search_runs([client.get_experiment_by_name("rollout").experiment_id]):
        numbers, examples = found.setdefault(run.info.run_name, ({}, {}))
        for key in run.data.metrics:
            for metric in client.get_metric_history(run.info.run_id, key):
                add(numbers.setdefault(key, {}), metric.step, metric.value)
        for artifact in client.list_artifacts(run.info.run_id, "examples"):
            add(examples, int(Path(artifact.path).stem), Path(client.download_artifacts(run.info.run_id, artifact.path)).read_text())
    return found


def add(values: dict[int, Any], step: int, value: Any) -> None:
    assert step not in values, f"step {step} was sent twice"
    values[step] = value


def wandb_records(file: Path) -> Iterator[Any]:
    """Yield the records of an offline run. The file is a LevelDB log: a header of 7 bytes, and blocks of 32 KiB with parts of
    records. Each part has a checksum, a length, and a kind: whole, first, middle or last."""
    from wandb.proto import wandb_internal_pb2

    data, at, parts = file.read_bytes(), 7, b""
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        parts += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(parts)
            yield record
            parts = b""
