"""Every reader reads every file.

usage: read_all.py JOB.json CACHE
"""

import importlib
import json
import os
import sys
import traceback

os.environ["HF_HOME"] = sys.argv[2]
with open(sys.argv[1]) as f:
    job = json.load(f)
failed = []
for name in "read_pyarrow", "read_duckdb", "read_datasets", "read_package":
    try:
        importlib.import_module(name).main(job)
    except Exception:
        traceback.print_exc()
        failed.append(name)
if failed:
    sys.exit("failed: " + ", ".join(failed))
