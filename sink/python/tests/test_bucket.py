"""Runs in a bucket and fleets: they read like a folder, with few requests, also while they grow."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import threading
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from conftest import MODEL
from made import Run, Sample
from waiting import PATIENCE

import rollout
from rollout.errors import CorruptError
from rollout.runs import entries, follow
from rollout.runs.shards import Files

KEYS = {"AWS_ACCESS_KEY_ID": "test-key", "AWS_SECRET_ACCESS_KEY": "test-secret", "AWS_EC2_METADATA_DISABLED": "true"}
FORMATS = pytest.mark.parametrize("fmt", ["parquet", "arrow"])


class Bucket:
    """The program of the folder buckettest: an S3 server that also writes datasets."""

    def __init__(self, url: str, place: str) -> None:
        self._url, self._place = url, place

    def call(self, what: str, **query: object) -> Any:
        query = {name.rstrip("_"): str(value) for name, value in query.items()}
        request = urllib.request.Request(f"{self._url}/-/{what}?{urllib.parse.urlencode(query)}", method="POST")
        try:
            with urllib.request.urlopen(request) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as err:
            raise AssertionError(err.read().decode()) from None

    def new(self) -> str:
        """Return the URL of an unused prefix."""
        bucket, _, parameters = self._place.partition("?")
        return f"{bucket}/{uuid.uuid4()}/run?{parameters}"

    def requests(self) -> int:
        """Return the number of requests since the last call."""
        return sum(self.call("requests").values())

    def upload(self, folder: Path) -> str:
        url = self.new()
        self.call("upload", from_=folder, to=url)
        return url


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of the program."""
    root, program = Path(__file__).parents[3], tmp_path_factory.mktemp("bucket") / "bucket"
    subprocess.run(["go", "build", "-o", program, "./sink/python/tests/buckettest"], cwd=root, env={**os.environ, "CGO_ENABLED": "0"}, check=True)
    settings = pytest.MonkeyPatch()
    for name, value in KEYS.items():
        settings.setenv(name, value)
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_PROFILE", "AWS_SESSION_TOKEN"):
        settings.delenv(name, raising=False)
    process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin and process.stdout
    yield process.stdout.readline().strip()
    process.stdin.close()
    process.wait()
    process.stdout.close()
    settings.undo()


STORES = dict(named.split("=", 1) for named in os.environ.get("STORES", "").split())
"""Other servers, as in .ci/e2e-store.sh."""


@pytest.fixture(params=["own", *STORES])
def bucket(server: str, request: pytest.FixtureRequest) -> Iterator[Bucket]:
    found = Bucket(server, STORES.get(request.param, f"s3://bucket?endpoint_override={server}"))
    found.requests()
    yield found
    found.call("fault", kind="none")


@pytest.fixture
def own(server: str) -> Iterator[Bucket]:
    """The bucket of the program."""
    bucket = Bucket(server, f"s3://bucket?endpoint_override={server}")
    bucket.requests()
    yield bucket
    bucket.call("fault", kind="none")


@pytest.fixture(scope="session")
def written(server: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Sealed datasets in the layout of a bucket, by format."""
    out = {}
    for fmt in ("parquet", "arrow"):
        out[fmt] = tmp_path_factory.mktemp("written") / "run"
        Bucket(server, "").call("write", to=out[fmt], first=0, groups=40, size=4, format=fmt, merge=4, seal=1)
    return out


@pytest.fixture
def fleet(server: str, tmp_path: Path) -> Path:
    """A fleet of three sealed partitions with 15 groups, a partition that no worker has claimed, and one without tasks."""
    folder = tmp_path / "fleet"
    folder.mkdir()
    parts = [{"tasks": 5}, {"tasks": 5}, {"tasks": 5}, {"tasks": 5}, {"tasks": 0}]
    (folder / "fleet.json").write_bytes(summed({"version": 1, "schema_version": 1, "id": "run", "partitions": parts}))
    for number in range(3):
        Bucket(server, "").call("write", to=folder / f"partitions/{number:04d}", first=5 * number, groups=5, size=4, seal=1)
    return folder


def summed(plan: dict[str, Any]) -> bytes:
    """Return the bytes of fleet.json, with its checksum."""
    body = json.dumps(plan, indent=2).encode()[: -len("\n}")]
    return body + b',\n  "sha256": "' + hashlib.sha256(body).hexdigest().encode() + b'"\n}\n'


def plain(groups: Iterable[rollout.Group]) -> list[Any]:
    """Return groups with all values of their rows, which can be compared."""
    return [
        (g.id, g.size, g.failed, g.empty, g.missing, [{k: v.tolist() if hasattr(v, "tolist") else v for k, v in row.items()} for row in g.rows])
        for g in groups
    ]


def ids(batches: Iterable[list[rollout.Group]]) -> list[list[str]]:
    return [[g.id for g in batch] for batch in batches]


@FORMATS
def test_a_bucket_reads_like_a_folder(bucket: Bucket, written: dict[str, Path], fmt: str) -> None:
    url, folder = bucket.upload(written[fmt]), written[fmt]
    there, here = rollout.Dataset(url), rollout.Dataset(folder)
    assert plain(there) == plain(here)
    assert len(there) == 40 and there.counts == here.counts and there.snapshot == here.snapshot
    assert repr(there) == repr(here).replace(str(folder), url)
    assert there[0].run == url
    assert dict(there.row(3)).keys() == dict(here.row(3)).keys()
    assert list(rollout.log.commits(url)) == list(rollout.log.commits(folder))
    for kind in ("data", "failures"):
        assert [s.path for s in rollout.log.shards(url, kind)] == [s.path.replace(str(folder), url.split("?")[0]) + "?" + url.split("?")[1] for s in rollout.log.shards(folder, kind)]
        for shard in rollout.log.shards(url, kind):
            rollout.log.check_shard(shard)
    assert rollout.log.table(url).equals(rollout.log.table(folder))
    filters = rollout.Where(min_tokens=60, segments=True)
    assert plain(rollout.Dataset(url, where=filters, check="size", columns=["reward", "input_ids"])) == plain(
        rollout.Dataset(folder, where=filters, columns=["reward", "input_ids"])
    )
    assert plain(rollout.Dataset(url, follow=True)) == plain(rollout.Dataset(folder, follow=True))


@FORMATS
@pytest.mark.parametrize("method", ["", "fork", "spawn"])
def test_workers_read_a_bucket(bucket: Bucket, written: dict[str, Path], fmt: str, method: str) -> None:
    url = bucket.upload(written[fmt])
    batches = rollout.Dataset(url).batches(groups=4, seed=3)
    expected = plain(g for batch in rollout.Dataset(written[fmt]).batches(groups=4, seed=3) for g in batch)
    options: dict[str, Any] = {"num_workers": 2, "multiprocessing_context": method} if method else {}
    loader = rollout.DataLoader(batches, **options)
    assert plain(g for batch in loader for g in batch) == expected
    halfway = iter(loader)
    first = [next(halfway) for _ in range(4)]
    again = rollout.DataLoader(rollout.Dataset(url).batches(groups=4, seed=3), **options)
    again.load_state_dict(loader.state_dict())
    assert plain(g for batch in [*first, *again] for g in batch) == expected


def test_a_copied_folder(bucket: Bucket, tmp_path: Path) -> None:
    """A run that a collector wrote into a folder, with merges that have moved entries, and that was copied to a bucket."""
    made = Run(tmp_path / "run")
    for n in range(12):
        made.commit([Sample(f"g{n}", 0, size=2), Sample(f"g{n}", 1, size=2, lengths=(4, 5))])
    made.merge([1, 2, 3, 4])
    made.merge([13, 5, 6])
    made.plan(24)
    url = bucket.upload(made.dir)
    assert plain(rollout.Dataset(url)) == plain(rollout.Dataset(made.dir))
    assert plain(rollout.Dataset(url, follow=True)) == plain(rollout.Dataset(made.dir))


def test_following_a_bucket(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes write one after the other, with merges, while a reader follows and is restarted."""
    monkeypatch.setattr(follow, "BUCKET_INTERVAL", 0.02)
    url = bucket.new()
    bucket.call("write", to=url, first=0, groups=3, size=4, merge=3)
    writer = threading.Thread(target=bucket.call, args=("write",), kwargs={"to": url, "first": 3, "groups": 40, "size": 4, "merge": 4, "seal": 1})
    writer.start()
    got, cursor = [], None
    for stop in (5, 30, 1000):
        following = rollout.Dataset(url, follow=True, timeout=PATIENCE).following(after=cursor)
        for group in following:
            got += plain([group])
            cursor = following.cursor
            if len(got) == stop:
                break
    writer.join()
    assert sorted(g[0] for g in got) == sorted(f"g{n}" for n in range(43))
    assert sorted(got) == sorted(plain(rollout.Dataset(url)))
    batches = rollout.Dataset(url, follow=True).batches(groups=4)
    assert [len(batch) for batch in rollout.DataLoader(batches, num_workers=2)] == [4] * 10
    assert batches.dropped == 3


def test_requests_of_a_thousand_commits(own: Bucket) -> None:
    bucket = own
    url = bucket.new()
    bucket.call("write", to=url, first=0, groups=1000, size=1, fast=1)
    bucket.requests()
    assert len(list(rollout.log.commits(url))) == 1000
    assert bucket.requests() <= 13
    dataset = rollout.Dataset(url)
    assert bucket.requests() <= 2 * 1000 + 30  # to open a shard, and its footer
    assert sum(len(row["input_ids"]) for group in dataset for row in group.rows) == 1_100_000
    assert bucket.requests() <= 2 * 1000 + 10
    loader = rollout.DataLoader(dataset.batches(groups=8, seed=1))
    assert sum(len(row["input_ids"]) for batch in loader for group in batch for row in group.rows) == 1_100_000
    assert bucket.requests() <= 3 * 1000 + 10
    dict(dataset[17].rows[0])
    assert bucket.requests() <= 4

    following = rollout.Dataset(url, follow=True, timeout=PATIENCE).following()
    while following.poll() is not None:
        pass
    bucket.call("write", to=url, first=1000, groups=100, size=1, fast=1)
    bucket.requests()
    found = 0
    while following.poll() is not None:
        found += 1
    assert found == 100
    assert bucket.requests() <= 100 * 6 + 50  # an entry and a shard: 2 + 4; and requests beyond the end
    bucket.requests()
    assert following.poll() is None
    assert bucket.requests() == 1


@pytest.mark.parametrize("name", ["log", "tail"])
@pytest.mark.parametrize("damage", ["damage", "delete"])
def test_checkpoints_are_only_copies(own: Bucket, written: dict[str, Path], name: str, damage: str) -> None:
    url = own.upload(written["parquet"])
    own.call(damage, from_=url, name=f"_checkpoints/{1:020d}.{name}.zst", at=30)
    assert [g.id for g in rollout.Dataset(url)] == [g.id for g in rollout.Dataset(written["parquet"])]


def test_a_checkpoint_that_lacks_an_entry_is_ignored(written: dict[str, Path], tmp_path: Path) -> None:
    import pyarrow as pa

    folder = tmp_path / "run"
    shutil.copytree(written["parquet"], folder)
    path = folder / f"_checkpoints/{1:020d}.log.zst"
    lines = list(entries._lines(path.read_bytes()))
    for cut in (lines[:-1], lines[:3] + lines[4:], [lines[0]]):
        with pa.CompressedOutputStream(pa.OSFile(str(path), "wb"), "zstd") as out:
            out.write(b"".join(cut))
        assert len(rollout.Dataset(folder)) == 40
        assert list(rollout.Dataset(folder, follow=True, timeout=5))


def test_the_newest_checkpoints_count(own: Bucket, written: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(written["parquet"], folder)
    for name in ("log", "tail"):
        (folder / f"_checkpoints/{0:020d}.{name}.zst").write_bytes(b"of a process that lost the log")
    url = own.upload(folder)
    own.requests()
    assert len(list(rollout.log.commits(url))) == len(list(rollout.log.commits(folder)))
    assert own.requests() <= 10
    for path in (folder / "_commits").iterdir():  # someone deletes the log
        own.call("delete", from_=url, name=f"_commits/{path.name}")
    assert list(rollout.log.commits(url)) == []


def test_shards_that_were_cleaned(bucket: Bucket, written: dict[str, Path]) -> None:
    """After a merge, the replaced shards can be deleted at any time. A reader that has the old log finds the rows."""
    folder = written["parquet"]
    url = bucket.upload(folder)
    valid = {s.path for kind in ("data", "failures") for s in rollout.log.shards(folder, kind)}
    replaced = [p for kind in ("data", "failures") for p in sorted((folder / kind).iterdir()) if str(p) not in valid]
    assert replaced
    old = [json.loads(path.read_bytes()) for path in sorted((folder / "_commits").iterdir())]  # as a reader saw it before the merges
    shards = [s for e in old if "kind" not in e and "merged" not in e for s in rollout.log.entry_shards(url, e) if s.kind == "data"]
    fresh = Files(shards, None, "sha256")
    fresh.verify(0)
    for path in replaced:
        bucket.call("delete", from_=url, name=f"{path.parent.name}/{path.name}")
    got = [dict(row) for number, s in enumerate(shards) for row in fresh.read([(number, 0, s.rows)])]
    again = [row for s in shards for row in rollout.log.rows(s)]
    want = [row for s in rollout.log.shards(folder) for row in rollout.log.rows(s)]
    assert [r["sample_key"] for r in got] == [r["sample_key"] for r in again] == [r["sample_key"] for r in want]
    bucket.call("delete", from_=url, name="/".join(Path(next(iter(valid))).parts[-2:]))
    with pytest.raises(rollout.CorruptError, match="the file is missing"):
        rollout.log.table(url, "data" if "/data/" in next(iter(valid)) else "failures")


def places(shard: Path) -> list[int]:
    """Return the places of bytes that a data set reads. It does not read all columns of a Parquet file."""
    size = shard.stat().st_size
    if shard.suffix != ".parquet":
        return [size // 10, size // 3, size // 2]
    group = pq.ParquetFile(shard).metadata.row_group(0)
    chunks = [group.column(i) for i in range(group.num_columns)]
    read = [c for c in chunks if c.path_in_schema.split(".")[0] in ("input_ids", "loss_mask", "logprobs")]
    assert len(read) == 3
    return [c.data_page_offset + c.total_compressed_size // 4 for c in read]


@FORMATS
def test_damage_in_a_bucket(bucket: Bucket, written: dict[str, Path], fmt: str) -> None:
    name = "/".join(Path(rollout.log.shards(str(written[fmt]))[0].path).parts[-2:])
    for at in places(written[fmt] / name):
        url = bucket.upload(written[fmt])
        shard = rollout.log.shards(url)[0]
        bucket.call("damage", from_=url, name=name, at=at)
        with pytest.raises(rollout.CorruptError):
            rollout.log.check_shard(shard)
        with pytest.raises(rollout.CorruptError):
            plain(rollout.Dataset(url))
        bucket.call("damage", from_=url, name=name, at=at)
        plain(rollout.Dataset(url))


def test_a_store_that_is_away(own: Bucket, written: dict[str, Path]) -> None:
    bucket = own
    url = bucket.upload(written["parquet"])
    dataset = rollout.Dataset(url)
    for kind, reads in {
        "away": (lambda: plain(dataset),),  # takes 6 s
        "denied": (lambda: rollout.Dataset(url), lambda: plain(dataset), lambda: list(rollout.log.commits(url)), lambda: rollout.log.table(url)),
    }.items():
        bucket.call("fault", kind=kind)
        for read in reads:
            with pytest.raises(rollout.StoreError) as caught:
                read()
            assert "check the store, the network and the credentials" in str(caught.value)
            assert "test-" not in str(caught.value) and "\n" not in str(caught.value)
        bucket.call("fault", kind="none")
    bucket.call("fault", kind="some")
    assert plain(rollout.Dataset(url)) == plain(dataset)


@pytest.mark.parametrize(
    "run, message",
    [
        ("s3://key:hunter2@bucket/run", "the URL contains credentials"),
        ("s3://bucket/run?secret_key=hunter2", "Unexpected query parameter in S3 URI: 'secret_key'"),
        ("gs://bucket/run", "not supported: use a folder or s3://bucket/prefix"),
    ],
)
def test_wrong_urls(run: str, message: str) -> None:
    for read in (lambda: rollout.Dataset(run), lambda: list(rollout.log.commits(run)), lambda: list(rollout.Following(run, timeout=1))):
        with pytest.raises(ValueError, match=message) as caught:
            read()
        assert "hunter2" not in str(caught.value)


def test_a_prefix_without_a_run(bucket: Bucket) -> None:
    with pytest.raises(FileNotFoundError, match="no run: there is no fleet.json, no run.json"):
        rollout.Dataset(bucket.new())


def test_a_bucket_that_does_not_exist(own: Bucket) -> None:
    url = own.new().replace("s3://bucket/", "s3://missing/")
    for read in (rollout.Dataset, lambda url: list(rollout.log.commits(url)), lambda url: next(iter(rollout.Following(url, timeout=5)))):
        with pytest.raises(rollout.StoreError, match="the bucket does not exist: create it, or correct the URL"):
            read(url)


def test_the_endpoint_of_the_environment(own: Bucket, server: str, written: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    url = own.upload(written["parquet"])
    monkeypatch.setenv("AWS_ENDPOINT_URL", server)
    assert len(rollout.Dataset(url.split("?")[0])) == 40


@pytest.mark.parametrize("where", ["folder", "bucket"])
def test_a_fleet(bucket: Bucket, fleet: Path, where: str) -> None:
    run = str(fleet) if where == "folder" else bucket.upload(fleet)
    parts = [rollout.Dataset(fleet / f"partitions/{number:04d}") for number in range(3)]
    dataset = rollout.Dataset(run)
    assert plain(dataset) == [group for part in parts for group in plain(part)]
    assert {g.run for g in dataset} == {run}
    assert dataset.group("g7", run=run).id == "g7"
    assert [s["seq"] for s in dataset.snapshot] == [*(part.snapshot[0]["seq"] for part in parts), 0]
    assert dataset.at(dataset.snapshot) is dataset
    assert len(list(rollout.log.commits(run))) == 15
    assert rollout.log.table(run).num_rows == sum(rollout.log.table(part.runs[0]).num_rows for part in parts)
    loader = rollout.DataLoader(dataset.batches(groups=4, seed=2), num_workers=2)
    half = [next(it) for it in [iter(loader)] for _ in range(2)]
    again = rollout.DataLoader(rollout.Dataset(run).batches(groups=4, seed=2))
    again.load_state_dict(loader.state_dict())
    assert ids([*half, *again]) == ids(dataset.batches(groups=4, seed=2))


@pytest.mark.parametrize("where", ["folder", "bucket"])
def test_following_a_fleet(bucket: Bucket, fleet: Path, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "BUCKET_INTERVAL", 0.02)
    run = str(fleet) if where == "folder" else bucket.upload(fleet)
    last = str(fleet / "partitions/0003") if where == "folder" else run.replace("?", "/partitions/0003?")
    dataset = rollout.Dataset(run, follow=True, timeout=PATIENCE)
    loader = rollout.DataLoader(dataset.batches(groups=2))
    batches = iter(loader)
    got = [next(batches) for _ in range(3)]
    state = json.loads(json.dumps(loader.state_dict()))
    writer = threading.Thread(target=bucket.call, args=("write",), kwargs={"to": last, "first": 15, "groups": 5, "size": 4, "seal": 1})
    writer.start()
    loader = rollout.DataLoader(rollout.Dataset(run, follow=True, timeout=PATIENCE).batches(groups=2))
    loader.load_state_dict(state)
    got += loader
    writer.join()
    assert sorted(g.id for batch in got for g in batch) == sorted(f"g{n}" for n in range(20))
    assert {g.run for batch in got for g in batch} == {run}

    following = dataset.following()
    first = [next(iter(following)).id for _ in range(7)]
    cursor = json.loads(json.dumps(following.cursor))
    rest = dataset.following(after=cursor)
    assert sorted([*first, *(g.id for g in rest)]) == sorted(f"g{n}" for n in range(20))
    assert len(rest.cursor["partitions"]) == 4
    assert dataset.following(after=rest.cursor).poll() is None
    with pytest.raises(rollout.StateError, match="want a cursor for each of 4 partitions"):
        dataset.following(after={"partitions": []})
    with pytest.raises(ValueError, match="needs one rank and num_workers=0"):
        next(iter(dataset.batches(groups=2, rank=0, world_size=2)))


def test_the_spool_of_a_worker_is_not_a_run(simulator: Callable[..., tuple[str, Path]], run_program: Callable[..., str], tmp_path: Path) -> None:
    url, tasks = simulator("--input-ids", "--scripted", "2")
    store, spool = tmp_path / "fleet", tmp_path / "spool"
    run_program("plan", "--server", url, "--model", MODEL, "--tasks", tasks, "--out", store)
    run_program("work", "--quiet", "--spool", spool, store)
    assert len(rollout.Dataset(store)) == 2
    for read in (rollout.Dataset, rollout.Following, rollout.log.commits, lambda out: rollout.collect(None, [], out=out)):
        with pytest.raises(rollout.FolderError, match=f"{spool}: the folder is the spool of a worker; the rows are in {store}\nhint: pass '{store}'"):
            read(spool)


def test_a_fleet_waits_for_all_partitions(fleet: Path) -> None:
    with pytest.raises(TimeoutError):
        list(rollout.Dataset(fleet, follow=True, timeout=0.1))


@pytest.mark.parametrize(
    "plan, error",
    [
        (summed({"version": 2, "partitions": "other"}), rollout.NewerError),
        (summed({"version": 1, "schema_version": 2, "partitions": "other"}), rollout.NewerError),
        (summed({"version": 1, "schema_version": 1, "partitions": [{"tasks": 0}]}), rollout.CorruptError),
        (summed({"version": 1, "schema_version": 1, "partitions": 4}), rollout.CorruptError),
        (summed({"version": 1, "schema_version": 1, "partitions": [{"tasks": 1}]}).replace(b"\"tasks\": 1", b"\"tasks\": 2"), rollout.CorruptError),
        (summed({"version": 1, "partitions": [{"tasks": 1}]}), rollout.CorruptError),
        (b'{"version":1,"schema_version":1,"partitions":[{"tasks":1}]}\n', rollout.CorruptError),
        (b"[]", rollout.CorruptError),
    ],
)
def test_bad_plans(tmp_path: Path, plan: bytes, error: type[Exception]) -> None:
    (tmp_path / "fleet.json").write_bytes(plan)
    with pytest.raises(error):
        rollout.Dataset(tmp_path)


def test_the_block_of_the_page(own: Bucket, written: dict[str, Path]) -> None:
    """DuckDB and Hugging Face datasets read the table of a run in a bucket."""
    page = (Path(__file__).parents[1] / "README.md").read_text()
    block = page.split("```py\ndataset = rollout.Dataset(\"s3://")[1].split("```")[0]
    block = re.sub(r"s3://bucket/run1[^\"]*", own.upload(written["parquet"]), 'dataset = rollout.Dataset("s3://' + block)
    names: dict[str, Any] = {"rollout": rollout, "duckdb": pytest.importorskip("duckdb"), "datasets": pytest.importorskip("datasets")}
    exec(block.replace("duckdb.sql(", "mean = duckdb.sql("), names)
    assert len(names["rows"]) == len(names["hf"]) == sum(len(g.rows) for g in names["dataset"])
    assert names["mean"].fetchall()[0][0] == pytest.approx(names["rows"]["reward"].to_numpy().mean())


def test_a_row_is_decoded_with_the_copy_in_the_bucket(
    own: Bucket, collect: Callable[..., Path], run_program: Callable[..., str], environment: dict[str, str], tmp_path: Path
) -> None:
    pytest.importorskip("tokenizers")
    shutil.copytree(Path(__file__).parents[3] / "collector" / "letta" / "lettasim" / "model", tmp_path / "model")
    (tmp_path / "model" / "additional_chat_templates").mkdir()
    shutil.copy(tmp_path / "model" / "chat_template.jinja", tmp_path / "model" / "additional_chat_templates" / "tool_use.jinja")
    run = collect("--samples", "1", "--tokenizer", tmp_path / "model", simulate=("--input-ids", "--scripted", "2"))
    want = [row.messages() for group in rollout.Dataset(run) for row in group.rows]
    url = own.upload(run)
    here = {"cwd": tmp_path, "env": {**environment, **KEYS}}
    exported = [json.loads(line)["messages"] for line in run_program("export", url, "--to", "openai-messages", **here).splitlines()]
    assert [row.messages() for group in rollout.Dataset(url) for row in group.rows] == want == exported
    (file,) = run.glob("tokenizer/*/additional_chat_templates/tool_use.jinja")
    file.chmod(0o644)
    file.write_bytes(file.read_bytes() + b" ")
    changed = own.upload(run)
    with pytest.raises(CorruptError, match=r"s3://bucket/.*/tokenizer/\w+: the run's copy of its tokenizer has changed: the files have sha256 \w{12}, want \w{12}; "):
        rollout.decode(rollout.Dataset(changed)[0].rows[0])
    run_program("export", changed, "--to", "openai-messages", status=9, **here)
