"""The path of the rollout program, and the version of the package."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterator
from importlib import metadata

_NAME = "rollout.exe" if sys.platform == "win32" else "rollout"

_MISSING = """rollout: this installation has the reader but not the rollout program.
It was installed from source, or for a platform without a wheel. Install a wheel
(Linux on x86-64 or arm64, macOS on arm64), or build the program with Go and put it on
PATH: go install github.com/rollout-rl/rollout/cmd/rollout@latest"""


def version() -> str:
    """Return the version of the package. The program in the package has the same version.

    Returns "0+unknown" if the package is not installed and only its source is on sys.path.
    """
    try:
        return metadata.version("rollout-rl")
    except metadata.PackageNotFoundError:
        return "0+unknown"


def program() -> str:
    """Return the absolute path of the rollout program.

    This is the program that pip installed together with this package. pip can install it into an
    environment, the user's site, --prefix or --target. If pip did not install a program, this is
    the first program on PATH with the name rollout. Raises FileNotFoundError if no program is
    found.
    """
    for path in _candidates():
        if _is_program(path):
            return os.path.abspath(path)
    raise FileNotFoundError(_MISSING)


def _candidates() -> Iterator[str]:
    site = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    try:
        # pip records the program's path in RECORD.
        for file in metadata.files("rollout-rl") or []:
            if file.name == _NAME:
                yield str(file.locate())
    except metadata.PackageNotFoundError:
        pass
    # With --target, pip writes RECORD first and then moves the folder that RECORD names to
    # TARGET/bin.
    yield os.path.join(site, "bin", _NAME)
    yield os.path.join(sysconfig.get_path("scripts"), _NAME)
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        if folder:
            yield os.path.join(folder, _NAME)


def _is_program(path: str) -> bool:
    """Report whether path is an executable file and not a script.

    An installation from source contains a script with the program's name, but the script only
    calls this module.
    """
    try:
        with open(path, "rb") as f:
            return f.read(2) != b"#!" and os.access(path, os.X_OK)
    except OSError:
        return False
