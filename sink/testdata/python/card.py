"""Open a run's folder with load_dataset, in several ways, and print the results.

Usage: card.py RUN CACHE. Prints one JSON object: for each way the number of rows and the
columns with their types, or the name of the error.
"""

import json
import os
import sys

run, cache = sys.argv[1:]
os.environ["HF_HOME"] = cache
os.environ["HF_HUB_OFFLINE"] = "1"

import datasets  # noqa: E402

datasets.disable_progress_bars()


def load(*config, streaming=False):
    try:
        found = datasets.load_dataset(run, *config, streaming=streaming)
        assert list(found) == ["train"], list(found)
        rows = found["train"]
        keys = [row["sample_key"] for row in rows]
        tokens = sum(len(row["input_ids"]) for row in rows) if "input_ids" in rows.features else 0
        columns = {name: repr(feature) for name, feature in rows.features.items()}
        return {"rows": len(keys), "keys": keys, "tokens": tokens, "columns": columns}
    except Exception as err:  # the test checks which error it is
        return {"error": type(err).__name__}


print(json.dumps({
    "default": load(),
    "streaming": load(streaming=True),
    "failures": load("failures"),
}))
