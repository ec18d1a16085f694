"""Fetches the wheels of the trainers into .build/trainers. The tests extract functions from the
wheels and compare the formulas of the Python package with them. The wheels are never installed.
Each wheel is pinned by its SHA-256. If the right wheel already exists, it is kept.
"""
import hashlib
import subprocess
import sys
from pathlib import Path

into = Path(__file__).resolve().parent.parent / ".build" / "trainers"

WHEELS = {
    "trl-1.16.0-py3-none-any.whl": "c4726e139dd40e1a41661511c639c8a68416782b2e3e8c0befebd77bb7ba0396",
    "verl-0.9.1-py3-none-any.whl": "db6e6f2a8d9d5808d9ec32d357a42319fdc6967df688ff9d9810050f49bfdd14",
    "harbor-0.26.0-py3-none-any.whl": "b7c752c5b51ae2ee1fc2ea30621493c7dc0b5a3d0157295bed4552115027baee",
    "skyrl-0.3.0-py3-none-any.whl": "0110e9434a58d6eb2aa533dd06e6346c8303757800af3c2b5a0d3f341cbad414",
    "areal-1.0.4-py3-none-any.whl": "7d7cfab10d9ec0990d9263290a9472366827783b9ad5fce22f56a1add416bdd9",
    "tinker-0.38.0-py3-none-any.whl": "7685b29f467a717972fc4104cd944a25226ed357f57595adbe0abec44bada5d0",
    "tinker_cookbook-0.6.1-py3-none-any.whl": "48a17bbfcde996c21e00fb90fd8f7f434d1456581b79b34550fca9c0cbd8c0fc",
    "openrlhf-0.11.2-cp311-cp311-manylinux1_x86_64.whl": "c969d70db03a70724c3d8a5a01186c6e0728bce624fb3dff95e39b5396acefa6",
}
# pip downloads wheels for another Python or platform only with these options.
PLATFORM = ["--platform", "manylinux1_x86_64", "--python-version", "3.11", "--abi", "cp311", "--abi", "none", "--implementation", "cp"]


def digest(file):
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.exists() else None


into.mkdir(parents=True, exist_ok=True)
for name, want in WHEELS.items():
    if digest(into / name) == want:
        continue
    package, version = name.split("-")[:2]
    print("trainers: fetching %s %s" % (package, version), file=sys.stderr)
    command = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:"]
    platform = [] if name.endswith("py3-none-any.whl") else PLATFORM
    # Also download packages that need a newer Python, because the tests only read their code.
    done = subprocess.run([*command, *platform, "--ignore-requires-python", "-d", str(into), "%s==%s" % (package, version)])
    if done.returncode:
        sys.exit("trainers: %s %s could not be fetched" % (package, version))
    if digest(into / name) != want:
        sys.exit("trainers: %s: sha256 %s, want %s" % (into / name, digest(into / name), want))
