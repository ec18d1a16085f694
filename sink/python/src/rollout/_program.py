"""Where the program rollout is, and which version this is."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterator
from importlib import metadata

_NAME = "rollout.exe" if sys.platform == "win32" else "rollout"

_MISSING = """rollout: this installation has the reader, but not the program.
It was installed from its source, or for a platform without a wheel. Install a wheel
(Linux on x86-64 or arm64, macOS on arm64), or build the program with Go and put it on
PATH: go install github.com/rollout-rl/rollout/cmd/rollout@latest"""


def version() -> str:
    """Return the version of the package, which is that of the program it carries.

    It is "0+unknown" where the package was never installed: its source is on
    sys.path.
    """
    try:
        return metadata.version("rollout-rl")
    except metadata.PackageNotFoundError:
        return "0+unknown"


def program() -> str:
    """Return the absolute path of the program rollout.

    That is the one which was installed with this package, wherever pip put it: an
    environment, the user's site, --prefix or --target. Without one it is the first
    on PATH. Raises FileNotFoundError where there is none.
    """
    for path in _candidates():
        if _is_program(path):
            return os.path.abspath(path)
    raise FileNotFoundError(_MISSING)


def _candidates() -> Iterator[str]:
    package = os.path.dirname(os.path.abspath(__file__))
    try:
        # pip writes into RECORD where it put the program.
        for file in metadata.files("rollout-rl") or []:
            if file.name == _NAME:
                yield str(file.locate())
    except metadata.PackageNotFoundError:
        pass
    # With --target, RECORD names a folder that pip then moved: TARGET/bin.
    yield os.path.join(os.path.dirname(package), "bin", _NAME)
    yield os.path.join(sysconfig.get_path("scripts"), _NAME)
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        if folder:
            yield os.path.join(folder, _NAME)


def _is_program(path: str) -> bool:
    """Report whether path is an executable file and no script.

    An installation from the source has a script of this name, which ends up here.
    """
    try:
        with open(path, "rb") as f:
            return f.read(2) != b"#!" and os.access(path, os.X_OK)
    except OSError:
        return False
