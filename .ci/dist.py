#!/usr/bin/env python3
"""Builds the release files: wheels and archives that contain the program.

usage: .ci/dist.py [--out DIR] wheel|release

wheel    build the wheel of this platform in DIR (default dist)
release  build the wheels of all platforms, an archive per platform and SHA256SUMS in DIR/release

The build is reproducible: the same source gives the same bytes in any folder, with the Go
toolchain of go.mod and the same zlib. All times are SOURCE_DATE_EPOCH (default: 1980-01-01),
the modes and the order of the files are fixed, and the program is built without paths. The
build needs Go, and Python 3.11 or newer for tomllib.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "sink" / "python"
LICENCES = {"LICENSE": ROOT / "LICENSE", "licenses.txt": ROOT / "cmd/rollout/internal/licenses/licenses.txt"}

# The program is static, so its wheel fits every Linux that Go supports, with any libc. Go 1.26
# needs macOS 12 (go.dev/doc/go1.25#darwin).
PLATFORMS = {
    "linux/amd64": ["manylinux_2_17_x86_64", "manylinux2014_x86_64", "musllinux_1_1_x86_64"],
    "linux/arm64": ["manylinux_2_17_aarch64", "manylinux2014_aarch64", "musllinux_1_1_aarch64"],
    "darwin/arm64": ["macosx_12_0_arm64"],
}


def epoch() -> int:
    """Return the time of every file in a wheel or an archive, 1980 or later because zip requires it."""
    return max(int(os.environ.get("SOURCE_DATE_EPOCH", 0)), 315532800)


def project() -> dict:
    """Return the table project of pyproject.toml. Its version must equal the program's version."""
    with open(PACKAGE / "pyproject.toml", "rb") as f:
        table = tomllib.load(f)["project"]
    source = (ROOT / "cmd/rollout/internal/version/version.go").read_text()
    number = re.search(r'^const Number = "(.+)"$', source, re.MULTILINE)
    if number is None or number[1] != table["version"]:
        sys.exit(f"dist: the version of sink/python/pyproject.toml is {table['version']}, "
                 f"that of cmd/rollout/internal/version is {number and number[1]}: make them equal")
    return table


def go(*args: str, **env: str) -> str:
    """Run the go command in the root of the module."""
    done = subprocess.run(["go", *args], cwd=ROOT, env={**os.environ, **env}, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.strip()


def build(platform: str, folder: Path) -> bytes:
    """Build the program for a platform such as linux/amd64."""
    system, arch = platform.split("/")
    began = time.monotonic()
    out = folder / f"rollout-{system}-{arch}"
    # The linker would remove the debug tables anyway. Not generating them saves a fifth of the time.
    go("build", "-trimpath", "-buildvcs=false", "-gcflags=all=-dwarf=false", "-ldflags=-s -w", "-o", str(out), "./cmd/rollout",
       GOOS=system, GOARCH=arch, CGO_ENABLED="0", GOAMD64="v1", GOARM64="v8.0", GOFLAGS="-mod=readonly")
    body = out.read_bytes()
    print(f"dist: {platform}: {len(body) / 1e6:.1f} MB in {time.monotonic() - began:.0f} s", file=sys.stderr)
    return body


def metadata(table: dict) -> str:
    """Return the content of the file METADATA (packaging.python.org/specifications/core-metadata, 2.4)."""
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {table['name']}",
        f"Version: {table['version']}",
        f"Summary: {table['description']}",
        *(f"Project-URL: {name}, {url}" for name, url in table["urls"].items()),
        f"License-Expression: {table['license']}",
        *(f"License-File: {name}" for name in LICENCES),
        f"Requires-Python: {table['requires-python']}",
        *(f"Requires-Dist: {want}" for want in table["dependencies"]),
    ]
    for extra, wants in table["optional-dependencies"].items():
        lines += [f"Provides-Extra: {extra}", *(f'Requires-Dist: {want}; extra == "{extra}"' for want in wants)]
    lines += ["Description-Content-Type: text/markdown", "", (PACKAGE / table["readme"]).read_text()]
    return "\n".join(lines)


def wheel(table: dict, platform: str, program: bytes, folder: Path) -> Path:
    """Write the wheel of a platform (packaging.python.org/specifications/binary-distribution-format)."""
    base = f"{table['name'].replace('-', '_')}-{table['version']}"
    tags = PLATFORMS[platform]
    files: list[tuple[str, bytes, int]] = []
    for path in sorted((PACKAGE / "src").rglob("*")):
        if path.suffix == ".py" or path.name == "py.typed":
            files.append((path.relative_to(PACKAGE / "src").as_posix(), path.read_bytes(), 0o644))
    files.append((f"{base}.data/scripts/rollout", program, 0o755))
    files += [(f"{base}.dist-info/licenses/{name}", path.read_bytes(), 0o644) for name, path in LICENCES.items()]
    files.append((f"{base}.dist-info/METADATA", metadata(table).encode(), 0o644))
    about = ["Wheel-Version: 1.0", "Generator: rollout .ci/dist.py", "Root-Is-Purelib: false", *(f"Tag: py3-none-{t}" for t in tags)]
    files.append((f"{base}.dist-info/WHEEL", "\n".join([*about, ""]).encode(), 0o644))
    record = "".join(f"{name},sha256={digest(body)},{len(body)}\n" for name, body, _ in files)
    files.append((f"{base}.dist-info/RECORD", f"{record}{base}.dist-info/RECORD,,\n".encode(), 0o644))

    path = folder / f"{base}-py3-none-{'.'.join(tags)}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as z:
        for name, body, mode in files:
            info = zipfile.ZipInfo(name, time.gmtime(epoch())[:6])
            info.create_system, info.external_attr, info.compress_type = 3, (0o100000 | mode) << 16, zipfile.ZIP_DEFLATED
            z.writestr(info, body)
    return path


def digest(body: bytes) -> str:
    """Return the digest of a file in the format of RECORD."""
    return base64.urlsafe_b64encode(hashlib.sha256(body).digest()).rstrip(b"=").decode()


def archive(table: dict, platform: str, program: bytes, folder: Path) -> Path:
    """Write the archive of a platform: the program, its license, the licenses of its
    dependencies, and README.md."""
    base = f"rollout-{table['version']}-{platform.replace('/', '-')}"
    files = [(name, path.read_bytes(), 0o644) for name, path in LICENCES.items()]
    files += [("README.md", (ROOT / "README.md").read_bytes(), 0o644), ("rollout", program, 0o755)]
    path = folder / f"{base}.tar.gz"
    # By default, the gzip header would contain the file name and the current time.
    with open(path, "wb") as f, gzip.GzipFile("", "wb", 6, f, mtime=0) as z, tarfile.open(fileobj=z, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, body, mode in files:
            info = tarfile.TarInfo(f"{base}/{name}")
            info.size, info.mode, info.mtime = len(body), mode, epoch()
            tar.addfile(info, io.BytesIO(body))
    return path


def main() -> None:
    """Build the files that the command line requests."""
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].removeprefix("usage: "))
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument("what", choices=["wheel", "release"])
    args = parser.parse_args()
    table, out = project(), args.out.resolve()
    host = f"{go('env', 'GOHOSTOS')}/{go('env', 'GOHOSTARCH')}"
    if args.what == "wheel" and host not in PLATFORMS:
        sys.exit(f"dist: there is no wheel for {host}, only for {', '.join(PLATFORMS)}")
    folder = out if args.what == "wheel" else out / "release"
    with tempfile.TemporaryDirectory() as scratch:
        made: list[Path] = []
        for platform in [host] if args.what == "wheel" else PLATFORMS:
            program = build(platform, Path(scratch))
            made.append(wheel(table, platform, program, Path(scratch)))
            if args.what == "release":
                made.append(archive(table, platform, program, Path(scratch)))
        if args.what == "release":
            sums = Path(scratch) / "SHA256SUMS"
            lines = sorted((path.name, hashlib.sha256(path.read_bytes()).hexdigest()) for path in made)
            sums.write_text("".join(f"{sha256}  {name}\n" for name, sha256 in lines))
            made.append(sums)
        # Remove wheels of older versions, because pip install dist/*.whl needs a single wheel.
        folder.mkdir(parents=True, exist_ok=True)
        for old in [*folder.glob("rollout*"), *folder.glob("SHA256SUMS")]:
            old.unlink()
        for path in made:
            shutil.move(path, folder / path.name)
            print(os.path.relpath(folder / path.name))


if __name__ == "__main__":
    main()
