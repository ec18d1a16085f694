#!/usr/bin/env python3
"""Builds the container image, without a container engine and without root.

usage: .ci/image.py FILE

FILE becomes an OCI archive for linux/amd64 and linux/arm64: a tar file of an OCI image layout. The
image contains the program, its licenses and the certificate authorities of Mozilla, from the pinned
package certifi. It has no shell, and no user except 65532. The build is reproducible, as in dist.py.
Exit status 75: certifi is not available here. This is not an error of the code.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

import dist

CERTIFI = "certifi==2026.10.19.post1"
USER = 65532
OCI = "application/vnd.oci.image."


def tar(entries: dict[str, bytes | None], user: int = 0) -> bytes:
    """Return a tar file. An entry without content is a folder, and belongs to the user."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as t:
        for name, body in entries.items():
            info = tarfile.TarInfo(name)
            info.mtime, info.mode = dist.epoch(), 0o755 if body is None or name.startswith("usr/bin/") else 0o644
            if body is None:
                info.type, info.uid, info.gid = tarfile.DIRTYPE, user, user
            else:
                info.size = len(body)
            t.addfile(info, io.BytesIO(body or b""))
    return out.getvalue()


def certificates(folder: Path) -> bytes:
    """Return the certificate authorities of certifi."""
    fetch = ["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:", "--dest", str(folder), CERTIFI]
    if subprocess.run([sys.executable, *fetch]).returncode != 0:
        print(f"image: {CERTIFI} is not available here", file=sys.stderr)
        sys.exit(75)
    with zipfile.ZipFile(next(folder.glob("certifi-*.whl"))) as z:
        return z.read("certifi/cacert.pem")


def main() -> None:
    """Build the image."""
    if len(sys.argv) != 2:
        sys.exit("usage: .ci/image.py FILE")
    version = dist.project()["version"]
    blobs: dict[str, bytes] = {}

    def blob(kind: str, body: bytes, **more: object) -> dict:
        """Add a blob to the image, and return its descriptor."""
        digest = hashlib.sha256(body).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = body
        return {"mediaType": OCI + kind, "digest": f"sha256:{digest}", "size": len(body), **more}

    def document(kind: str, content: dict, **more: object) -> dict:
        return blob(kind, json.dumps(content, sort_keys=True).encode(), **more)

    manifests = []
    with tempfile.TemporaryDirectory() as scratch:
        common = {"etc/ssl/certs/ca-certificates.crt": certificates(Path(scratch))}
        common |= {f"licenses/{name}": path.read_bytes() for name, path in dist.LICENCES.items()}
        for arch in ["amd64", "arm64"]:
            program = dist.build(f"linux/{arch}", Path(scratch))
            layer = tar(common | {"usr/bin/rollout": program, "data": None}, USER)
            config = document("config.v1+json", {
                "architecture": arch, "os": "linux",
                "config": {"User": f"{USER}:{USER}", "WorkingDir": "/data", "Entrypoint": ["/usr/bin/rollout"], "Env": ["PATH=/usr/bin"],
                           "Labels": {"org.opencontainers.image.version": version}},
                "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
            })
            packed = blob("layer.v1.tar+gzip", gzip.compress(layer, mtime=0))
            print(f"image: linux/{arch}: {packed['size'] / 1e6:.1f} MB", file=sys.stderr)
            manifest = {"schemaVersion": 2, "mediaType": OCI + "manifest.v1+json", "config": config, "layers": [packed]}
            manifests.append(document("manifest.v1+json", manifest, platform={"architecture": arch, "os": "linux"}))
    index = {"schemaVersion": 2, "mediaType": OCI + "index.v1+json", "manifests": manifests}
    names = {"org.opencontainers.image.ref.name": version}
    root = {"schemaVersion": 2, "manifests": [document("index.v1+json", index, annotations=names)]}
    layout = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}', "index.json": json.dumps(root, sort_keys=True).encode(), **blobs}
    Path(sys.argv[1]).write_bytes(tar(layout))


if __name__ == "__main__":
    main()
