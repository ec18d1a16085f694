"""The README's quick start on a machine without Go: the short form of .ci/firstrow.sh."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / ".ci" / "firstrow.sh"


@pytest.mark.skipif("src" in os.environ.get("PYTHONPATH", ""), reason="runs on the source: no wheel is built")
def test_first_verified_row() -> None:
    done = subprocess.run([SCRIPT, "--here"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-4000:]
    assert re.search(r"^the first of \d+ rows: ", done.stdout, re.MULTILINE), done.stdout
    assert re.search(r"^firstrow: from the wheel to the first verified row: ", done.stdout, re.MULTILINE)
