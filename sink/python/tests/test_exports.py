"""rollout export --to …: the files, checked by the code of the programs that read them.

Harbor's validator and tinker's Datum come from the pinned wheels (make trainers), the rest from the
installed packages. slime has no package; its checks are written here after its source
(slime/utils/types.py, slime/ray/rollout.py) and are not slime's own code.
"""

from __future__ import annotations

import importlib
import json
import sys
import types
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import collates
import pytest
import trainers

import rollout

datasets = pytest.importorskip("datasets")
np, torch = trainers.np, trainers.torch

Row = dict[str, Any]
SHAPES = ["plain", "forks", "failures and null rewards", "truncation"]
EVERY = rollout.Where(missing="keep")
"""export does not leave out groups with samples that are not in the log, as the shape plain has."""


@pytest.fixture(scope="module")
def runs(collect: Callable[..., Path], run_program: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run of each shape: edits of a collected run with failures, which import checks."""
    faults = ("--fault", "no-turns@scripted-0002/0/1", "--fault", "short-logprobs@scripted-0003/1/1")
    server = ("--input-ids", "--scripted", "4", *faults)
    run = collect("--tokenizer", "simulated", "--samples", "4", "--policy-version", "7", "--fail-on-error", "50%", simulate=server, status=3)
    lines = [json.loads(line) for line in run_program("export", run, "--kind", "all").splitlines()]
    assert lines[0]["failures"] == 2

    def forked(row: Row) -> list[Row]:
        row = row | {"segment_count": 2} | {k: 2 * row[k] for k in ("prompt_tokens", "completion_tokens", "steps")}
        divergence = {"call": 1, "offset": 3, "kind": "last_output", "row": [1], "prompt": [2]}
        return [row, row | {"segment_index": 1, "divergence": json.dumps(divergence, separators=(",", ":"))}]

    def unscored(row: Row) -> list[Row]:
        kept = {"keep": False, "keep_reason": "reward_std"} if row["sample_index"] == 3 else {}
        return [row | {"reward": None} if row["sample_index"] == 2 else row | kept]

    def truncated(row: Row) -> list[Row]:
        reasons = [*row["finish_reasons"][:-1], "length"]
        return [row | {"truncated": True, "flags": ["length"], "finish_reasons": reasons, "status": "truncated"}]

    made = {}
    for shape, edit in zip(SHAPES, (lambda row: [row], forked, unscored, truncated)):
        folder = tmp_path_factory.mktemp("edited")
        out: list[Row] = []
        for line in lines[1:]:
            if "input_ids" in line:
                row = line | {"reward": [0.25, 1.0, 0.1, 1.0][line["sample_index"]]}
                out += edit(row) if shape != "forks" or row["sample_index"] == 0 else [row]
            elif shape != "plain":
                out.append(line)
        counts = {"rows": sum("input_ids" in line for line in out), "failures": sum("class" in line for line in out)}
        counts["samples"] = len({line["sample_key"] for line in out})
        header = lines[0] | counts | {"run_id": f"{lines[0]['run_id']}x"}
        (folder / "lines.jsonl").write_text("".join(json.dumps(line) + "\n" for line in [header, *out]))
        run_program("import", folder / "lines.jsonl", "--out", folder / "run")
        made[shape] = folder / "run"
    return made


@pytest.fixture
def export(runs: dict[str, Path], run_program: Callable[..., str], tmp_path: Path) -> Callable[..., Path]:
    """export(shape, format) exports a run and returns the file or the folder."""

    def run(shape: str, to: str) -> Path:
        tokenizer = () if to in ("slime", "tinker", "jsonl") else ("--tokenizer", "simulated")
        run_program("export", runs[shape], "--to", to, *tokenizer, "-o", tmp_path / to)
        return tmp_path / to

    return run


def lines_of(file: Path) -> list[Any]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def rows_of(file: Path) -> dict[tuple[str, int], Row]:
    return {(row["sample_key"], row["segment_index"]): row for row in lines_of(file)}


def trained(rows: dict[tuple[str, int], Row]) -> dict[tuple[str, int], Row]:
    return {k: row for k, row in rows.items() if row["reward"] is not None and row["keep"] is not False}


# ATIF


@pytest.fixture(scope="module")
def harbor() -> Iterator[Any]:
    """Harbor's validator."""
    (wheel,) = trainers.FOLDER.glob("harbor-*.whl")
    sys.path.insert(0, str(wheel))
    yield importlib.import_module("harbor.utils.trajectory_validator").TrajectoryValidator()
    sys.path.remove(str(wheel))


def check_atif(harbor: Any, trajectory: Row, row: Row) -> None:
    """Compare a trajectory with its row."""
    assert harbor.validate(trajectory), harbor.get_errors()
    ids, logprobs, mask = np.array(row["input_ids"]), np.array(row["logprobs"], "f"), np.array(row["loss_mask"])
    seen = np.zeros(len(ids), bool)
    for step in trajectory["steps"]:
        if metrics := step.get("metrics"):
            begin, end = metrics["prompt_tokens"], metrics["prompt_tokens"] + metrics["completion_tokens"]
            assert metrics["prompt_token_ids"] == ids[:begin].tolist() and metrics["completion_token_ids"] == ids[begin:end].tolist()
            assert (np.array(metrics["logprobs"], "f") == logprobs[begin:end]).all()
            seen[begin:end] = True
    assert (seen == (mask == 1)).all()


@pytest.mark.parametrize("shape", SHAPES)
def test_atif(shape: str, export: Callable[..., Path], harbor: Any, run_program: Callable[..., str], tmp_path: Path) -> None:
    rows = list(rows_of(export(shape, "jsonl")).values())
    file = export(shape, "atif")
    trajectories = lines_of(file)
    assert len(trajectories) == len(rows)
    for trajectory, row in zip(trajectories, rows):
        check_atif(harbor, trajectory, row)
        assert trajectory["session_id"] == row["rollout_id"]
    assert len({t["trajectory_id"] for t in trajectories}) == len(rows)
    run_program("import", file, "--out", tmp_path / "again")
    assert run_program("export", tmp_path / "again") == (tmp_path / "jsonl").read_text()


def test_planted_in_atif(export: Callable[..., Path], harbor: Any, run_program: Callable[..., str], tmp_path: Path) -> None:
    row = next(iter(rows_of(export("plain", "jsonl")).values()))
    trajectory = lines_of(export("plain", "atif"))[0]
    metrics = next(step["metrics"] for step in trajectory["steps"] if "metrics" in step)
    metrics["logprobs"] = metrics["logprobs"][1:] + [0.0]
    with pytest.raises(AssertionError):
        check_atif(harbor, trajectory, row)
    metrics["prompt_token_ids"], metrics["completion_token_ids"] = metrics["prompt_token_ids"][:-1], metrics["completion_token_ids"]
    (tmp_path / "planted").write_text(json.dumps(trajectory))
    run_program("import", tmp_path / "planted", "--out", tmp_path / "no", status=2)
    trajectory["steps"][-1]["step_id"] += 1
    assert not harbor.validate(trajectory)


# tinker


@pytest.fixture(scope="module")
def tinker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The modules of tinker's types, without its client."""
    folder = tmp_path_factory.mktemp("tinker")
    (wheel,) = trainers.FOLDER.glob("tinker-*.whl")
    with zipfile.ZipFile(wheel) as z:
        z.extractall(folder)
    had = set(sys.modules)
    for name in ("tinker", "tinker.types"):
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = [str(folder / name.replace(".", "/"))]
    sys.modules.setdefault("sniffio", types.ModuleType("sniffio"))
    yield types.SimpleNamespace(
        Wire=importlib.import_module("tinker.types._pydantic_types.datum").Datum,
        Datum=importlib.import_module("tinker.types.datum").Datum,
        TensorData=importlib.import_module("tinker.types.tensor_data").TensorData,
        ModelInput=importlib.import_module("tinker.types.model_input").ModelInput,
    )
    for name in set(sys.modules) - had:
        if name.split(".")[0] in ("tinker", "sniffio"):
            del sys.modules[name]


def check_tinker(tinker: Any, line: Row, row: Row, advantage: float) -> None:
    assert tinker.Wire.model_validate(line["datum"]).model_dump(exclude_none=True) == line["datum"]
    # as in sink/README.md
    tokens = line["datum"]["model_input"]["chunks"][0]["tokens"]
    inputs = {name: tinker.TensorData(**tensor) for name, tensor in line["datum"]["loss_fn_inputs"].items()}
    datum = tinker.Datum(model_input=tinker.ModelInput.from_ints(tokens), loss_fn_inputs=inputs)
    got = {k: t.to_numpy() for k, t in datum.loss_fn_inputs.items()}
    # tinker_cookbook/rl/data_processing.py: the input lacks the last token; the rest is about the next token
    assert datum.model_input.to_ints() == row["input_ids"][:-1]
    assert got["target_tokens"].tolist() == row["input_ids"][1:]
    assert (got["logprobs"] == np.array(row["logprobs"][1:], "f")).all()
    assert (got["advantages"] == np.float32(advantage) * np.array(row["loss_mask"][1:], "f")).all()
    assert set(got) == {"target_tokens", "logprobs", "advantages"}


def advantages(rows: dict[tuple[str, int], Row]) -> dict[str, float]:
    groups: dict[str, dict[str, float]] = defaultdict(dict)
    for row in trained(rows).values():
        groups[row["group_id"]][row["sample_key"]] = row["reward"]
    return {key: reward - sum(group.values()) / len(group) for group in groups.values() for key, reward in group.items()}


@pytest.mark.parametrize("shape", SHAPES)
def test_tinker(shape: str, export: Callable[..., Path], tinker: Any) -> None:
    rows = rows_of(export(shape, "jsonl"))
    lines = lines_of(export(shape, "tinker"))
    assert [(line["sample_key"], line["segment_index"]) for line in lines] == list(trained(rows))
    expected = advantages(rows)
    assert any(expected.values()), "every advantage is 0, so the test proves little"
    for line in lines:
        check_tinker(tinker, line, rows[line["sample_key"], line["segment_index"]], expected[line["sample_key"]])


@pytest.mark.parametrize("shape", SHAPES)
def test_tinker_is_that_of_the_package(shape: str, runs: dict[str, Path], export: Callable[..., Path]) -> None:
    lines = {(line["sample_key"], line["segment_index"]): line["datum"] for line in lines_of(export(shape, "tinker"))}
    groups = list(rollout.Dataset(runs[shape], where=EVERY))
    rows = [row for group in groups for row in group.rows if row["reward"] is not None]
    with collates.tinker():
        made = rollout.to_tinker(groups, null_reward="drop")
        assert len(made) == len(lines)
        for row, datum in zip(rows, made, strict=True):
            line = lines[row["sample_key"], row["segment_index"]]
            assert datum.model_input.to_ints() == line["model_input"]["chunks"][0]["tokens"]
            assert datum.loss_fn_inputs.keys() == line["loss_fn_inputs"].keys()
            for name, tensor in datum.loss_fn_inputs.items():
                np.testing.assert_allclose(tensor.to_numpy(), line["loss_fn_inputs"][name]["data"], rtol=1e-6, err_msg=name)


def test_planted_in_tinker(export: Callable[..., Path], tinker: Any) -> None:
    rows = rows_of(export("plain", "jsonl"))
    line = lines_of(export("plain", "tinker"))[0]
    row, advantage = rows[line["sample_key"], 0], advantages(rows)[line["sample_key"]]
    tensor = line["datum"]["loss_fn_inputs"]["logprobs"]
    tensor["data"] = tensor["data"][1:]
    with pytest.raises(ValueError, match="reshape"):  # tinker's own check
        check_tinker(tinker, line, row, advantage)
    tensor["data"] += [0.0]
    with pytest.raises(AssertionError):
        check_tinker(tinker, line, row, advantage)


# slime


def check_slime(samples: list[Row], rows: dict[tuple[str, int], Row]) -> None:
    """What slime asserts about a file of --load-debug-rollout-data, and that the values are those of the rows."""
    keys = [(s["metadata"]["sample_key"], s["metadata"]["segment_index"]) for s in samples]
    assert sorted(keys) == sorted(trained(rows))
    assert [s["index"] for s in samples] == list(range(len(samples)))
    rollouts: dict[int, str] = {}
    for s, key in zip(samples, keys):
        row, begin = rows[key], rows[key]["prompt_length"]
        assert s["response_length"] == len(s["loss_mask"]) == len(s["rollout_log_probs"]) == len(s["tokens"]) - begin
        assert s["tokens"] == row["input_ids"] and s["loss_mask"] == row["loss_mask"][begin:]
        assert (np.array(s["rollout_log_probs"], "f") == np.array(row["logprobs"][begin:], "f")).all()
        assert s["metadata"]["raw_reward"] == row["reward"] and s["status"] == ("truncated" if row["truncated"] else "completed")
        assert s["weight_versions"] == ["7"]
        assert rollouts.setdefault(s["rollout_id"], key[0]) == key[0], "two samples share a rollout_id"
    assert len(rollouts) == len({key for key, _ in keys})
    groups = [rows[key]["group_id"] for key in keys]
    assert [s["group_index"] for s in samples] == sorted(s["group_index"] for s in samples)
    assert len({*zip(groups, (s["group_index"] for s in samples))}) == len(set(groups)), "a group is split"


def check_same(samples: list[Row], made: list[Row]) -> None:
    """Check that export wrote the samples of rollout.to_slime. Both compute the advantages in float64."""
    for got, want in zip(samples, made, strict=True):
        assert got["reward"] == pytest.approx(want["reward"], abs=1e-12)
        assert got | {"reward": 0} == want | {"reward": 0}


@pytest.mark.parametrize("shape", SHAPES)
def test_slime(shape: str, runs: dict[str, Path], export: Callable[..., Path]) -> None:
    rows = rows_of(export(shape, "jsonl"))
    file = export(shape, "slime")
    data = torch.load(file)
    assert set(data) == {"rollout_id", "samples"} and data["rollout_id"] == 0
    check_slime(data["samples"], rows)
    made = rollout.to_slime(rollout.Dataset(runs[shape], where=EVERY), null_reward="drop")
    check_same(data["samples"], made)
    assert any(s["reward"] for s in made)
    made[-1]["reward"] = made[-1]["metadata"]["raw_reward"]
    with pytest.raises(AssertionError):
        check_same(data["samples"], made)
    with zipfile.ZipFile(file) as z:
        assert z.testzip() is None


@pytest.mark.parametrize("field", ["loss_mask", "rollout_log_probs"])
def test_planted_in_slime(field: str, export: Callable[..., Path]) -> None:
    rows = rows_of(export("plain", "jsonl"))
    samples = torch.load(export("plain", "slime"))["samples"]
    samples[0][field] = [0, *samples[0][field][:-1]]
    with pytest.raises(AssertionError):
        check_slime(samples, rows)


# openai-messages and hf-traces


@pytest.mark.parametrize("shape", SHAPES)
def test_messages(shape: str, export: Callable[..., Path], tmp_path: Path) -> None:
    rows = rows_of(export(shape, "jsonl"))
    file = export(shape, "openai-messages")
    loaded = datasets.load_dataset("json", data_files=str(file), split="train", cache_dir=str(tmp_path / "cache"))
    assert [(line["sample_key"], line["segment_index"]) for line in loaded] == list(rows)
    is_conversational = trainers.functions("trl", "trl/data_utils.py", {"Any": Any}, "is_conversational").is_conversational
    called = 0
    for line, row in zip(loaded, rows.values()):
        assert is_conversational({"messages": line["messages"]})
        assert line["reward"] == row["reward"] and line["truncated"] == row["truncated"]
        assert [m["role"] for m in line["messages"][:2]] == ["system", "user"] and line["messages"][-1]["role"] == "assistant"
        ids: set[str] = set()
        for m in line["messages"]:
            for call in m.get("tool_calls") or []:
                ids.add(call["id"])
                assert isinstance(json.loads(call["function"]["arguments"]), dict)
                called += 1
            assert m["role"] != "tool" or m["tool_call_id"] in ids
    assert called > 0


@pytest.mark.parametrize("shape", SHAPES)
def test_traces(shape: str, export: Callable[..., Path]) -> None:
    """The datasets library takes the files for traces of an agent, as the Hub does."""
    loader = importlib.import_module("datasets.packaged_modules.json.json")
    rows = rows_of(export(shape, "jsonl"))
    files = sorted(export(shape, "hf-traces").glob("??/*.jsonl"))
    assert len(files) == len(rows)
    by_id = {}
    for file in files:
        lines = file.read_text().splitlines()
        harness, session, prompt, _, users, _ = loader.parse_traces_info(lines)
        header, *messages = map(json.loads, lines)
        assert (harness, session) == ("pi", header["id"]) and users == 1 and prompt.startswith("Add ")  # pi: files of this form
        by_id[header["sample_key"], header["segment_index"]] = header
        assert header["type"] == "session" and header["harness"] == "rollout"
        for line in messages:
            assert set(line) == {"type", "message"} and line["type"] == "message"
            assert line["message"]["role"] in ("user", "assistant", "system", "tool") and isinstance(line["message"]["content"], str)
    assert by_id.keys() == rows.keys()
    assert all(by_id[k]["reward"] == rows[k]["reward"] for k in rows)
    folder = datasets.load_dataset("json", data_files=[str(f) for f in files], split="train", streaming=True, parse_agent_traces=False)
    assert loader.has_agent_traces_markers(folder.features or folder._resolve_features().features)


def test_tokens_are_the_conversation(engine: str, run_program: Callable[..., str], tmp_path: Path) -> None:
    """The messages from the tokens are those that a harness sent: without a tokenizer, they come from what the tap recorded."""
    tasks = [{"id": f"t{n}", "prompt": f"Write two notes. [script:harness seed={n} {what}]"} for n, what in enumerate(("subagent", "parallel", ""))]
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
    command = [sys.executable, str(Path(__file__).parent / "subagents.py"), "{prompt}"]
    harness = {"command": command, "env": {"OPENAI_BASE_URL": "{base_url}/v1", "OPENAI_API_KEY": "{key}"}}
    (tmp_path / "run.json").write_text(json.dumps({"harness": harness, "engine": [engine], "output": {"messages": True}}))
    run_program("collect", "--quiet", "-c", tmp_path / "run.json", "--tasks", tmp_path / "tasks.jsonl", "--out", tmp_path / "run")

    def talks(*flags: str) -> dict[str, list[Any]]:
        lines = map(json.loads, run_program("export", tmp_path / "run", "--to", "openai-messages", *flags).splitlines())
        # the template adds the tools to the system message, and the tokens have no ids of calls
        return {
            line["sample_key"]: [
                (m["role"], m["content"].split("\n\n# Tools")[0], [call["function"] for call in m.get("tool_calls", [])]) for m in line["messages"]
            ]
            for line in lines
            if line.get("chain_kind", "main") == "main"
        }

    stored = talks()
    assert len(stored) == len(tasks) and sum(bool(calls) for talk in stored.values() for _, _, calls in talk) >= len(tasks)
    assert talks("--tokenizer", "simulated") == stored
