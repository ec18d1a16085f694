"""The package and the program in it, as installed."""

from __future__ import annotations

import importlib.metadata
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import rollout as package

TESTS = Path(__file__).resolve().parent
INSTALLED = not Path(package.__file__).resolve().is_relative_to(TESTS.parent)


def installed() -> importlib.metadata.Distribution:
    """Return the distribution, whose source must not be imported."""
    if not INSTALLED:
        pytest.skip("runs on the source: the wheel is not installed")
    return importlib.metadata.distribution("rollout-rl")


def module(*args: str, **popen) -> subprocess.CompletedProcess:
    """Run python -m rollout to its end."""
    return subprocess.run([sys.executable, "-m", "rollout", *args], capture_output=True, text=True, **popen)


def test_installed_package_is_tested():
    # make test must not pass on files in the source. --source states what it does.
    assert INSTALLED or os.environ.get("PYTHONPATH", "").endswith("sink/python/src")


def test_versions_are_one(run_program):
    of_program = json.loads(run_program("version", "--json"))["version"]
    assert package.__version__ == installed().version == of_program
    assert of_program in run_program("version")


def test_program_is_that_of_the_distribution(rollout):
    files = [Path(str(f.locate())).resolve() for f in installed().files or [] if f.name == "rollout"]
    assert files == [Path(rollout).resolve()]
    assert os.access(rollout, os.X_OK)
    assert Path(rollout).parent == Path(sys.executable).parent


def test_licences_are_there(run_program):
    meta = installed().metadata
    assert meta["License-Expression"] == "Apache-2.0"
    texts = {n: installed().read_text(f"licenses/{n}") for n in meta.get_all("License-File")}
    assert "Apache License" in texts["LICENSE"]
    # The program contains what it reports.
    assert texts["licenses.txt"] == run_program("version", "--licenses")


def test_module_runs_the_program():
    done = module("version")
    assert done.returncode == 0 and done.stdout.startswith("rollout ")
    assert module("collect").returncode == 2
    assert "no-such" in module("no-such-verb").stderr


def test_module_becomes_the_program(environment):
    # The started process is the program itself: signals reach it, and no process in between can
    # outlive it.
    command = [sys.executable, "-m", "rollout", "simulate", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline().startswith("http://")
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 0
            assert "simulated: 0 sends" in process.stderr.read()
        finally:
            process.kill()


def test_import_is_light(tmp_path):
    # The package imports without torch, and prints nothing on import.
    (tmp_path / "torch.py").write_text("raise ImportError('there is no torch here')\n")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])}
    done = subprocess.run([sys.executable, "-W", "error", "-c", "import rollout; print(rollout.__version__)"], env=env, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
