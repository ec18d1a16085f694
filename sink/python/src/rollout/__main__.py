"""`python -m rollout` runs the rollout program with the same arguments, and exits with its status.
`python -m rollout log-to` sends a run to an experiment tracker; see rollout.log_to."""

from __future__ import annotations

import os
import subprocess
import sys

from rollout.collecting._program import program
from rollout.tracking import log_to


def main() -> int:
    """Replace this process with the program. On Windows, run the program and wait for it."""
    if sys.argv[1:2] == ["log-to"]:
        return log_to.main(sys.argv[2:])
    try:
        path = program()
    except FileNotFoundError as err:
        print(err, file=sys.stderr)
        return 127
    args = [path, *sys.argv[1:]]
    if sys.platform == "win32":
        return subprocess.run(args, check=False).returncode
    os.execv(path, args)


if __name__ == "__main__":
    sys.exit(main())
