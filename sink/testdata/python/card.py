"""Open a run's folder with load_dataset, in several ways, and print the results.

Usage: card.py CACHE, with a folder in each line of the input. Prints one JSON object for each
folder: for each way the number of rows and the columns with their types, or the name of the error.
"""

import json
import os
import sys

os.environ["HF_HOME"] = sys.argv[1]
os.environ["HF_HUB_OFFLINE"] = "1"

import datasets  # noqa: E402

datasets.disable_progress_bars()


def load(run, *config, streaming=False):
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


for line in sys.stdin:
    folder = line.strip()
    print(json.dumps({
        "default": load(folder),
        "streaming": load(folder, streaming=True),
        "failures": load(folder, "failures"),
    }), flush=True)
