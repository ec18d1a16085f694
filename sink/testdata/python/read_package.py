"""The package reads committed shards."""

import expect
from rollout import log


def main(job):
    for run in job["runs"]:
        want = job["sets"][run["set"]]
        rows = [row for shard in log.shards(run["dir"]) for row in log.rows(shard)]
        for row in rows:
            del row["started_at"]
        assert expect.check_python(rows, want) == want["rows"]
        expect.check_table(log.table(run["dir"]), want)
