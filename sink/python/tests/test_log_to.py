"""rollout.log_to sends each group of a run once, also while the run is collected, to the real
trackers in their offline modes (.ci/trackers.sh)."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made import Run, Sample
from waiting import PATIENCE

import rollout
from rollout.tracking import log_to as module
from rollout.tracking import metrics, trackers

SECRET = "sk-0123456789-never-sent"
NAMES = ["wandb", "trackio", "tensorboard", "mlflow"]
MODEL = Path(__file__).resolve().parents[3] / "collector" / "letta" / "lettasim" / "model"


class Recorder:
    """A tracker that keeps what it gets."""

    made: list[Recorder] = []

    def __init__(self, project: str, name: str, config: dict[str, Any], id: str | None, step: int) -> None:
        self.given, self.id = (project, name, config, id, step), id or f"id{len(self.made)}"
        self.sent: list[tuple[int, dict[str, float], str | None]] = []
        self.closed = False
        Recorder.made.append(self)

    def log(self, step: int, numbers: dict[str, float], example: str | None) -> None:
        self.sent.append((step, numbers, example))

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Recorder]]:
    monkeypatch.setitem(trackers.TRACKERS, "wandb", Recorder)
    Recorder.made.clear()
    yield Recorder.made


@pytest.fixture(scope="module")
def finished(collect: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with forks, failed samples and rewards, in several commits."""
    config = tmp_path_factory.mktemp("config") / "run.json"
    config.write_text('{"output": {"shard_bytes": "1KiB"}}')
    simulate = ("--input-ids", "--scripted", "4", "--drift", "0.7", "--wrong", "0.4", "--fault", "id-mismatch=0.1")
    run = collect("-c", config, "--samples", "4", "--reward", "number", "--tokenizer", MODEL, simulate=simulate, status=(0, 3, 4))
    assert len(list((run / "_commits").glob("0*.json"))) > 1
    return run


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A copy of the run, so that it has no place of another test."""
    return Path(shutil.copytree(finished, tmp_path / "copies" / "run1"))


def failed(run: Path) -> int:
    return sum(group.failed for group in rollout.Dataset(run))


def test_each_group_is_a_step(run: Path, recorded: list[Recorder]) -> None:
    groups = list(rollout.Following(run, timeout=0))
    assert rollout.log_to(run, "wandb", examples=2) == len(groups) == 4
    (one,) = recorded
    assert one.given[:2] == ("rollout", "run1") and one.given[3:] == (None, 0) and one.closed
    assert one.given[2] == {"run_id": json.loads((run / "run.json").read_bytes())["id"], "model": "sglang//models/qwen3", "reward": "number"}
    assert [step for step, _, _ in one.sent] == [1, 2, 3, 4]
    for (_, numbers, _), group in zip(one.sent, groups):
        rewards = list({row["sample_key"]: row["reward"] for row in group.rows}.values())
        assert numbers["reward/mean"] == pytest.approx(np.mean(rewards)) and numbers["samples/failed"] == group.failed
        assert numbers["length/rows"] == len(group.rows) / len(rewards) and all(type(v) is float for v in numbers.values())
    assert one.sent[-1][1]["failures/token_mismatch"] == failed(run) > 0
    examples = [text for _, _, text in one.sent]
    assert examples[1] is examples[3] is None and "<|im_start|>" in (examples[0] or "")
    assert f"reward {one.sent[0][1]['reward/min']}" in (examples[0] or "")


def test_the_next_call_continues(run: Path, recorded: list[Recorder]) -> None:
    class Killed(Recorder):
        def log(self, step: int, numbers: dict[str, float], example: str | None) -> None:
            if step == 3:
                raise KeyboardInterrupt
            super().log(step, numbers, example)

    trackers.TRACKERS["wandb"] = Killed
    with pytest.raises(KeyboardInterrupt):
        rollout.log_to(run, "wandb")
    trackers.TRACKERS["wandb"] = Recorder
    assert rollout.log_to(run, "wandb") == 2 and rollout.log_to(run, "wandb") == 0
    first, second, third = recorded
    assert first.closed and [step for step, _, _ in first.sent] == [1, 2]
    assert second.given[3:] == (first.id, 2) and [step for step, _, _ in second.sent] == [3, 4] and third.given[3:] == (first.id, 4)
    assert rollout.log_to(run, "wandb", name="again") == 4  # another run in the tracker


def test_a_run_that_is_being_collected(tmp_path: Path, recorded: list[Recorder], monkeypatch: pytest.MonkeyPatch) -> None:
    # Rows written by hand have few columns.
    monkeypatch.setattr(module, "metrics_of", lambda group: {"reward/mean": sum(row["reward"] for row in group.rows) / len(group.rows)})
    made = Run(tmp_path / "run")
    made.plan(4)
    rows = [Sample(group, index, [3], 2, facts={"reward": float(index)}) for group in "ab" for index in range(2)]
    made.commit(rows[:2])
    assert rollout.log_to(made.dir, "wandb", examples=0) == 1  # what the log has now
    done = threading.Thread(target=rollout.log_to, args=(made.dir, "wandb"), kwargs={"follow": True, "examples": 0}, daemon=True)
    done.start()
    made.commit(rows[2:3])
    made.commit(rows[3:])
    done.join(PATIENCE)
    assert not done.is_alive() and [(step, n) for step, n, _ in recorded[1].sent] == [(2, {"reward/mean": 0.5})]


def test_groups_without_rows_or_rewards() -> None:
    assert metrics.metrics_of(rollout.Group("r", "g", 2, [], failed=2)) == {"samples/rows": 0.0, "samples/failed": 2.0, "samples/empty": 0.0}
    row = {
        "sample_key": "k", "reward": None, "input_ids": np.arange(5), "loss_mask": np.array([0, 0, 1, 1, 0]), "turn_roles": np.array([0, 1, 2]),
        "truncated": True, "duration_ms": 1500, "policy_version_min": None,
    }  # fmt: skip
    got = metrics.metrics_of(rollout.Group("r", "g", 1, [row, {**row, "truncated": False}]))
    assert not any(name.startswith("reward") or name == "policy_version" for name in got)
    want = {"samples/unscored": 1, "samples/truncated": 1, "length/sampled_tokens": 4, "length/calls": 2, "length/rows": 2, "length/row_tokens_max": 5}
    assert got.items() >= want.items() and got["time/seconds"] == 1.5
    assert metrics.metrics_of(rollout.Group("r", "g", 1, [{**row, "policy_version_min": 7}]))["policy_version"] == 7


def test_without_a_tokenizer_there_are_no_examples(collect: Callable[..., Path], recorded: list[Recorder], caplog: pytest.LogCaptureFixture) -> None:
    run = collect("--samples", "1", simulate=("--input-ids", "--scripted", "2"))
    assert rollout.log_to(run, "wandb", examples=1) == 2
    assert [text for _, _, text in recorded[0].sent] == [None, None]
    assert [r.message for r in caplog.records if "no examples" in r.message] == [
        f"no examples are sent: {run}: the run has no copy of its tokenizer: pass tokenizer=, the folder of the model"
    ]


def test_a_long_example_is_cut(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "MAX_TEXT", 50)
    group = next(iter(rollout.Dataset(run, where=rollout.Where(reward_variance=True))))
    text = metrics.example_of(group, MODEL)
    head, _, body = text.partition("\n\n")
    assert head.startswith("sample ") and body.startswith("[the first ") and len(body.split("\n", 1)[1]) == 50
    worst = min(row["reward"] for row in group.rows)
    assert f"reward {worst}" in head


@pytest.mark.parametrize(("arguments", "error", "says"), [
    ({"to": "neptune"}, ValueError, "to='neptune': must be one of wandb, trackio, tensorboard, mlflow"),
    ({"project": 5}, TypeError, "project=5: must be a string"),
    ({"name": 5}, TypeError, "name=5: must be a string or None"),
    ({"examples": -1}, ValueError, "examples=-1: must be ≥ 0"),
    ({"follow": "yes"}, TypeError, "follow='yes': must be True or False"),
    ({"run": "no-such-run"}, FileNotFoundError, "no-such-run: no such folder"),
])  # fmt: skip
def test_wrong_arguments(run: Path, arguments: dict[str, Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        rollout.log_to(**{"run": run, "to": "wandb", **arguments})


def test_a_missing_package_is_said(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, needs in (("wandb", "wandb"), ("trackio", "trackio"), ("tensorboard", "torch tensorboard"), ("mlflow", "mlflow")):
        monkeypatch.setitem(sys.modules, "torch.utils.tensorboard" if name == "tensorboard" else name, None)
        with pytest.raises(ImportError, match=f"this tracker needs: pip install {needs}"):
            rollout.log_to(run, name)
    assert not (run / "logs" / "tracker-wandb.json").exists()


def command(run: Path, cwd: Path, *args: str, **env: str) -> str:
    """Run python -m rollout log-to in a folder, as a user would."""
    cwd.mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", "-m", "rollout", "log-to", *args[:1], str(run), *args[1:]],
        cwd=cwd, env={**os.environ, "HOME": str(cwd), "ROLLOUT_SERVER_PASSWORD": SECRET, **env}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    assert SECRET not in done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(("arguments", "status", "says"), [
    (["wandb", "none"], 1, "rollout: log-to: none: no such folder; pass the --out folder of `rollout collect`"),
    (["x", "none"], 2, "argument to: invalid choice: 'x'"),
    (["wandb", "none", "--examples", "-1"], 1, "rollout: log-to: examples=-1: must be ≥ 0"),
])  # fmt: skip
def test_the_command_says_what_is_wrong(capsys: pytest.CaptureFixture[str], arguments: list[str], status: int, says: str) -> None:
    with pytest.raises(SystemExit) as raised:
        module.main(arguments)
    assert raised.value.code == status and says in capsys.readouterr().err


def test_the_command_sends(run: Path, recorded: list[Recorder], capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["wandb", str(run), "--project", "p", "--name", "n", "--examples", "0"]
    assert module.main(arguments) == 0 and capsys.readouterr().out == "rollout: sent 4 groups\n"
    assert recorded[0].given[:2] == ("p", "n") and not any(text for _, _, text in recorded[0].sent)


def test_an_error_of_the_tracker_is_an_error(
    run: Path, recorded: list[Recorder], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def away(*_: object) -> None:
        raise TimeoutError("no answer from the tracker")

    monkeypatch.setattr(Recorder, "log", away)
    with pytest.raises(SystemExit):
        module.main(["wandb", str(run)])
    assert capsys.readouterr().err == "rollout: log-to: no answer from the tracker\n" and recorded[0].closed


def test_ctrl_c_ends_the_command(run: Path, recorded: list[Recorder], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Recorder, "log", interrupted)
    assert module.main(["wandb", str(run)]) == 130 and recorded[0].closed


def steps_of(name: str, folder: Path) -> dict[int, float]:
    """Return what the tracker stored as reward/mean, by step."""
    if name == "wandb":
        pairs = []
        for record in (r for file in sorted(folder.glob("wandb/offline-run-*/*.wandb")) for r in wandb_records(file)):
            items = {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
            pairs += [(record.history.step.num, items["reward/mean"])] if "reward/mean" in items else []
        return unique(pairs)
    if name == "trackio":
        (file,) = folder.glob("trackio/rollout.db")
        with sqlite3.connect(file) as db:
            rows = [(step, json.loads(text)) for step, text in db.execute("SELECT step, metrics FROM metrics ORDER BY id")]
        return unique((step, values["reward/mean"]) for step, values in rows if "reward/mean" in values)
    if name == "tensorboard":
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        events = EventAccumulator(str(folder / "rollout" / "run1"))
        events.Reload()
        return unique((e.step, e.value) for e in events.Scalars("reward/mean"))
    import mlflow

    client = mlflow.MlflowClient(f"sqlite:///{folder}/mlflow.db")
    (one,) = client.search_runs([client.get_experiment_by_name("rollout").experiment_id])
    return unique((m.step, m.value) for m in client.get_metric_history(one.info.run_id, "reward/mean"))


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


def unique(pairs: Any) -> dict[int, float]:
    found: dict[int, float] = {}
    for step, value in pairs:
        assert step not in found, f"step {step} was sent twice"
        found[step] = value
    return found


@pytest.mark.parametrize("name", NAMES)
def test_the_real_tracker_offline(run: Path, tmp_path: Path, name: str) -> None:
    if not os.environ.get("ROLLOUT_TRACKERS"):
        pytest.skip(".ci/trackers.sh installs the trackers")
    folder = tmp_path / "work"
    env = {
        "WANDB_MODE": "offline", "WANDB_API_KEY": SECRET.ljust(40, "0"), "TRACKIO_DIR": str(folder / "trackio"), "HF_HUB_OFFLINE": "1", "HF_TOKEN": SECRET,
        "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db", "MLFLOW_TRACKING_PASSWORD": SECRET,
    }  # fmt: skip
    want = {step: metrics.metrics_of(group)["reward/mean"] for step, group in enumerate(rollout.Following(run, timeout=0), start=1)}
    last = sorted((run / "_commits").glob("0*.json"))[-1]
    last.rename(tmp_path / last.name)  # not yet committed
    assert command(run, folder, name, "--examples", "2", **env).count("rollout: sent 3 groups\n") == 1
    (tmp_path / last.name).rename(last)
    assert command(run, folder, name, "--examples", "2", **env).count("rollout: sent 1 group\n") == 1
    assert command(run, folder, name, **env).count("rollout: sent 0 groups\n") == 1
    assert steps_of(name, folder) == pytest.approx(want)
    everything = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    assert b"im_start" in everything, "the examples are missing"
    assert SECRET.encode() not in everything
