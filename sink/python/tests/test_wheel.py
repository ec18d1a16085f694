"""The wheel as a file, and its installation with pip. Needs the source that it is built from."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pyarrow
import pytest

import rollout as package

ROOT = Path(__file__).resolve().parents[3]

pytestmark = pytest.mark.skipif("src" in os.environ.get("PYTHONPATH", ""), reason="runs on the source: no wheel is built")


def run(*command: object, status: int = 0, **popen) -> str:
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **popen)
    assert done.returncode == status, f"{command}: {done.returncode}\n{done.stdout[-4000:]}"
    return done.stdout


def build(source: Path, out: Path, **env: str) -> Path:
    """Build the wheel of this platform from a source."""
    run(sys.executable, source / ".ci" / "dist.py", "--out", out, "wheel", env={**os.environ, **env}, cwd=source)
    (wheel,) = out.glob("*.whl")
    return wheel


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this platform, built from this source: .ci/pytest.sh has built one."""
    given = os.environ.get("ROLLOUT_WHEEL")
    return Path(given) if given else build(ROOT, tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="session")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with only pip."""
    folder = tmp_path_factory.mktemp("bare") / "env"
    run(sys.executable, "-m", "venv", folder)
    return folder / "bin" / "python"


@pytest.fixture(scope="session")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The last commit in another folder."""
    folder = tmp_path_factory.mktemp("elsewhere") / "source"
    run("git", "clone", "--quiet", "--depth", "1", f"file://{ROOT}", folder)
    return folder


def test_source_date_epoch(wheel, tmp_path):
    later = build(ROOT, tmp_path, SOURCE_DATE_EPOCH="1700000000")
    with zipfile.ZipFile(later) as z:
        assert {i.date_time for i in z.infolist()} == {(2023, 11, 14, 22, 13, 20)}
    with zipfile.ZipFile(wheel) as z:
        assert {i.date_time for i in z.infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_contents(wheel):
    # pip's own library parses the tags of the name; zipfile reads the rest.
    from packaging.metadata import Metadata
    from packaging.utils import parse_wheel_filename

    name, version, build_tag, tags = parse_wheel_filename(wheel.name)
    assert (name, build_tag, {(t.interpreter, t.abi) for t in tags}) == ("rollout-rl", (), {("py3", "none")})
    base = f"rollout_rl-{version}"
    with zipfile.ZipFile(wheel) as z:
        assert z.testzip() is None
        names = z.namelist()
        modes = {i.filename: i.external_attr >> 16 for i in z.infolist()}
        meta = Metadata.from_email(z.read(f"{base}.dist-info/METADATA"))  # raises if invalid
        about = z.read(f"{base}.dist-info/WHEEL").decode().splitlines()
        program = z.read(f"{base}.data/scripts/rollout")
    assert len(names) == len(set(names)) and names[-1] == f"{base}.dist-info/RECORD"
    source = {path.relative_to(ROOT / "sink/python/src").as_posix() for path in (ROOT / "sink/python/src").rglob("*.py")}
    assert {*source, "rollout/py.typed", f"{base}.dist-info/licenses/LICENSE"} < set(names)
    assert not [n for n in names if "test" in n or n.endswith(".pyc")]
    assert {n: oct(m) for n, m in modes.items() if m != 0o100644} == {f"{base}.data/scripts/rollout": "0o100755"}
    assert {line.removeprefix("Tag: ") for line in about if line.startswith("Tag: ")} == {str(t) for t in tags}
    assert meta.version == version and str(meta.requires_python) == ">=3.10" and meta.description_content_type == "text/markdown"
    # A static program needs no loader, and contains no path of the build machine.
    assert b"/lib64/ld-linux" not in program and b"/lib/ld-musl" not in program
    assert str(ROOT).encode() not in program and os.path.expanduser("~/go").encode() not in program


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for a chroot")
def test_program_needs_nothing(wheel, tmp_path):
    # As in an image from scratch: no libc, no shell, no user name, no folder for temporary files.
    (tmp_path / "data").mkdir()
    with zipfile.ZipFile(wheel) as z:
        (name,) = (n for n in z.namelist() if n.endswith("/scripts/rollout"))
        (tmp_path / "rollout").write_bytes(z.read(name))
    os.chmod(tmp_path / "rollout", 0o755)
    os.chmod(tmp_path, 0o755)
    os.chown(tmp_path / "data", 65532, 65532)
    inside = [shutil.which("chroot"), "--userspec=65532:65532", tmp_path, "/rollout"]
    assert json.loads(run(*inside, "version", "--json", env={}))["version"] == package.__version__
    assert "is not a run folder" in run(*inside, "verify", "/data", env={}, status=7)


def test_pip_takes_the_right_one(wheel, bare, tmp_path):
    # Of several wheels in a folder, pip takes the one for the platform.
    folder = tmp_path / "wheels"
    folder.mkdir()
    shutil.copy(wheel, folder)
    head = wheel.name.split("-none-")[0]
    for tag in ("manylinux_2_17_s390x", "macosx_12_0_arm64", "win_amd64"):
        (folder / f"{head}-none-{tag}.whl").write_bytes(b"of another platform")
    out = run(bare, "-m", "pip", "install", "--no-index", "--no-deps", "--find-links", folder, "rollout-rl", "--dry-run")
    assert "Would install rollout-rl" in out


@pytest.mark.parametrize("way", ["environment", "target", "prefix", "user"])
def test_program_is_found(wheel, bare, tmp_path, way):
    # Wherever pip puts the package, python -m rollout finds its program.
    python, where, path = bare, [], [str(Path(pyarrow.__file__).parents[1])]
    if way == "environment":
        run(sys.executable, "-m", "venv", tmp_path / "there")
        python = tmp_path / "there" / "bin" / "python"
    elif way == "target":
        where = ["--target", str(tmp_path / "there")]
        path.insert(0, str(tmp_path / "there"))
    elif way == "prefix":
        where = ["--prefix", str(tmp_path / "there")]
        path.insert(0, str(tmp_path / "there" / "lib" / "python{}.{}".format(*sys.version_info) / "site-packages"))
    elif way == "user":
        python, where = Path(sys._base_executable), ["--user", "--break-system-packages"]
    env = {**os.environ, "PATH": "/usr/bin:/bin", "PYTHONUSERBASE": str(tmp_path / "there")}
    env.pop("PYTHONPATH", None)
    run(python, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--ignore-installed", *where, wheel, env=env, cwd=tmp_path)
    env["PYTHONPATH"] = os.pathsep.join(path)
    (program,) = run(python, "-c", "import rollout; print(rollout.program())", env=env, cwd=tmp_path).split()
    assert Path(program).is_relative_to(tmp_path / "there")
    assert run(python, "-m", "rollout", "version", env=env, cwd=tmp_path).startswith("rollout ")


def test_installation_from_source(bare, clone, tmp_path, environment):
    # Without a program the reader works, and the command reports what is missing.
    env = {**environment, "PATH": f"{bare.parent}:/usr/bin:/bin"}
    base = str(Path(pyarrow.__file__).parents[1])
    install = [bare, "-m", "pip", "install", "--quiet", "--no-index", "--no-build-isolation", "--no-deps"]
    run(*install, "--target", tmp_path / "there", clone / "sink" / "python", env={**env, "PYTHONPATH": base})
    env["PYTHONPATH"] = os.pathsep.join([str(tmp_path / "there"), base])
    run(bare, "-c", "import rollout; print(rollout.Group)", env=env, cwd=tmp_path)
    for command in ([bare, "-m", "rollout"], [tmp_path / "there" / "bin" / "rollout"]):
        # A script that took itself for the program would never end.
        out = run(*command, "version", env=env, cwd=tmp_path, status=127, timeout=60)
        assert "this installation has the reader but not the rollout program" in out and "go install" in out
    # A program on PATH is used.
    (tmp_path / "bin").mkdir()
    os.symlink(package.program(), tmp_path / "bin" / "rollout")
    env["PATH"] = f"{tmp_path / 'bin'}:{env['PATH']}"
    assert run(bare, "-m", "rollout", "version", env=env, cwd=tmp_path).startswith("rollout ")
