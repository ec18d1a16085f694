"""Create a folder for the next round, with the agent of the best attempt of a run.

usage: python3 next.py RUN ATTEMPTS FOLDER
"""

import shutil
import sys
from pathlib import Path

from rollout import log

run, attempts, folder = sys.argv[1:]
samples = log.table(run, columns=["reward", "agent_id"]).to_pylist()
best = max((s for s in samples if s["reward"] is not None), key=lambda s: s["reward"])
# The file session of an attempt contains the id in the column agent_id.
[attempt] = (f.parent for f in Path(attempts).glob("rollout-*/session") if f.read_text() == best["agent_id"])
shutil.copytree(attempt / "work" / "letta", Path(folder) / "letta")
shutil.copy("sessions.sh", folder)
