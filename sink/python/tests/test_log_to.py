"""rollout.log_to sends each group of a run once, also while the run is collected, to the real
trackers in their offline modes (.ci/trackers.sh)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made import Run, Sample
from tracked import stored
from waiting import PATIENCE

import rollout
from rollout.errors import StateError
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


def test_the_newest_scores_set_is_a_run_of_its_own(run: Path, recorded: list[Recorder], run_program: Callable[..., str]) -> None:
    assert rollout.log_to(run, "wandb", examples=0) == 4
    run_program("rescore", run, "--reward", "contains")
    for given, sent in ((None, 4), ("0001", 0), ("collected", 0)):  # no group is sent twice
        assert rollout.log_to(run, "wandb", examples=0, scores=given) == sent
    first, second, third, fourth = recorded
    assert [one.given[1] for one in recorded] == ["run1", "run1-0001", "run1-0001", "run1"]
    assert [one.given[3:] for one in recorded] == [(None, 0), (None, 0), (second.id, 4), (first.id, 4)] and not third.sent and not fourth.sent
    assert second.given[2] == {**first.given[2], "scores": "0001", "reward": "contains"}
    for one, name in ((first, "collected"), (second, "0001")):
        groups = rollout.Following(run, timeout=0, scores=name)
        assert [numbers["reward/mean"] for _, numbers, _ in one.sent] == [metrics.metrics_of(group)["reward/mean"] for group in groups]
    places = json.loads((run / "logs" / "tracker-wandb.json").read_bytes())
    assert {where: place["scores"] for where, place in places.items()} == {"rollout/run1": "collected", "rollout/run1-0001": "0001"}
    with pytest.raises(ValueError, match="the run rollout/run1-0001 in wandb has the rewards of the scores set 0001, not of collected: pass another name"):
        rollout.log_to(run, "wandb", name="run1-0001", scores="collected")
    with pytest.raises(ValueError, match="has no complete scores set with this name"):
        rollout.log_to(run, "wandb", scores="0002")


def test_failures_after_the_last_group_are_sent_once(run: Path, recorded: list[Recorder], monkeypatch: pytest.MonkeyPatch) -> None:
    assert rollout.log_to(run, "wandb") == 4
    monkeypatch.setattr(module, "failures_of", lambda run: {"failures/timeout": 9.0})
    assert rollout.log_to(run, "wandb") == rollout.log_to(run, "wandb") == 0
    assert recorded[1].sent == [(4, {"failures/timeout": 9.0}, None)] and recorded[2].sent == []


@pytest.mark.parametrize("text", ["", "5", "[1]", '{"rollout/run1": {"step": 3}}', '{"rollout/run1": 3}'])
def test_a_damaged_place_is_said(run: Path, recorded: list[Recorder], text: str) -> None:
    (run / "logs").mkdir(exist_ok=True)
    (run / "logs" / "tracker-wandb.json").write_text(text)
    with pytest.raises(StateError, match="tracker-wandb.json: not the places of log-to: .*without the file, all groups are sent again"):
        rollout.log_to(run, "wandb")
    assert not recorded


def test_a_file_in_the_place_of_tensorboards_folder(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch.utils.tensorboard")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rollout").touch()
    with pytest.raises(NotADirectoryError, match="rollout/run1: TensorBoard needs a folder with this name, .* pass another project"):
        rollout.log_to(run, "tensorboard")


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


@pytest.mark.parametrize("name", NAMES)
def test_the_real_tracker_offline(run: Path, tmp_path: Path, run_program: Callable[..., str], monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    if not os.environ.get("ROLLOUT_TRACKERS"):
        pytest.skip(".ci/trackers.sh installs the trackers")
    folder = tmp_path / "work"
    env = {
        "WANDB_MODE": "offline", "WANDB_API_KEY": SECRET.ljust(40, "0"), "TRACKIO_DIR": str(folder / "trackio"), "HF_HUB_OFFLINE": "1", "HF_TOKEN": SECRET,
        "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db", "MLFLOW_TRACKING_PASSWORD": SECRET,
    }  # fmt: skip
    last = sorted((run / "_commits").glob("0*.json"))[-1]
    last.rename(tmp_path / last.name)  # not yet committed
    assert command(run, folder, name, "--examples", "2", **env).count("rollout: sent 3 groups\n") == 1
    (tmp_path / last.name).rename(last)
    assert command(run, folder, name, "--examples", "2", **env).count("rollout: sent 1 group\n") == 1
    assert command(run, folder, name, **env).count("rollout: sent 0 groups\n") == 1
    run_program("rescore", run, "--reward", "contains")
    assert command(run, folder, name, "--examples", "2", **env).count("rollout: sent 4 groups\n") == 1
    with monkeypatch.context() as patched:
        for key, value in env.items():
            patched.setenv(key, value)
        found = stored(name, folder)
    assert found.keys() == {"run1", "run1-0001"}
    for key, scores in (("run1", "collected"), ("run1-0001", "0001")):
        numbers, examples = found[key]
        groups = list(rollout.Following(run, timeout=0, scores=scores))
        for step, group in enumerate(groups, start=1):
            want = metrics.metrics_of(group)
            assert {of: values[step] for of, values in numbers.items() if step in values and not of.startswith("failures/")} == pytest.approx(want)
        assert numbers["failures/token_mismatch"][4] == failed(run) > 0
        assert examples.keys() == {1, 3}
        for step, text in examples.items():
            assert text.split() == metrics.example_of(groups[step - 1], MODEL).split()  # some trackers get it as a block of code
            assert f"reward {numbers['reward/min'][step]:.1f}, " in text
    everything = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    assert SECRET.encode() not in everything
