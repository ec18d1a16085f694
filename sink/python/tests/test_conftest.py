"""The fixtures work as documented."""

import json
import urllib.request


def test_run_has_rows(collect, run_program):
    run = collect("--samples", "2")
    assert list((run / "data").glob("part-*.parquet"))
    rows = [json.loads(line) for line in run_program("inspect", "--json", run).splitlines()]
    assert len(rows) >= 16


def test_arrow_and_failures(collect):
    simulate = ("--input-ids", "--scripted", "4", "--fault", "short-logprobs@scripted-0002")
    run = collect("--format", "arrow", "--fail-on-error", "1", simulate=simulate, status=3)
    assert list((run / "data").glob("part-*.arrow*"))
    assert list((run / "failures").glob("*.parquet"))


def test_simulator(simulator):
    url, tasks = simulator("--scripted", "3")
    assert len(tasks.read_text().splitlines()) == 3
    with urllib.request.urlopen(url + "/v1/health/") as answer:
        assert answer.status == 200


def test_start(start):
    process = start("simulate", "--listen", "127.0.0.1:0")
    assert process.poll() is None
