"""Makes OCI archives for the suites of other projects: images from layers, layers from functions that fill a folder."""

import hashlib
import json
import os
import pathlib
import subprocess
import tarfile
import tempfile


def run(*command, **options):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, **options).stdout


def make(work, images, fillers):
    """Makes images, NAME: (layers, configuration), in WORK/images, and a list of their names and files. An image that exists is kept."""
    folder = work / "images"
    folder.mkdir(exist_ok=True)
    listed = []
    for name, (layers, config) in images.items():
        file = f"{name.rsplit('/', 1)[1].replace(':', '-')}.tar"
        if not (folder / file).exists():
            archive(folder / file, [layer(part, work, fillers[part]) for part in layers], config)
        listed.append(f"{name} {file}\n")
    (folder / "list").write_text("".join(listed))


def layer(name, work, fill):
    """A layer as an uncompressed archive, made once."""
    path = work / "layers" / f"{name}.tar"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            root.chmod(0o755)
            fill(root, work)
            run("tar", "--create", "--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--directory", root, "--file", f"{path}.part", ".")
        os.rename(f"{path}.part", path)
    return path


def archive(path, layers, config):
    """Writes an OCI archive."""
    digests = [f"sha256:{hashlib.sha256(layer.read_bytes()).hexdigest()}" for layer in layers]
    blobs = {}

    def blob(kind, value):
        data = json.dumps(value).encode()
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        blobs[digest] = data
        return {"mediaType": f"application/vnd.oci.image.{kind}+json", "digest": digest, "size": len(data)}

    described = blob("config.v1", {"architecture": run("dpkg", "--print-architecture", text=True).strip(), "os": "linux", "config": config, "rootfs": {"type": "layers", "diff_ids": digests}})
    tars = [{"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": digest, "size": layer.stat().st_size} for digest, layer in zip(digests, layers)]
    manifest = blob("manifest.v1", {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": described, "layers": tars})
    with tempfile.TemporaryDirectory() as folder, tarfile.open(path, "w") as out:
        texts = {"oci-layout": {"imageLayoutVersion": "1.0.0"}, "index.json": {"schemaVersion": 2, "manifests": [manifest]}}
        files = {name: json.dumps(value).encode() for name, value in texts.items()}
        files |= {f"blobs/{digest.replace(':', '/')}": data for digest, data in blobs.items()}
        for name, data in files.items():
            file = pathlib.Path(folder, "file")
            file.write_bytes(data)
            out.add(file, name)
        for digest, tar in zip(digests, layers):
            out.add(tar, f"blobs/{digest.replace(':', '/')}")
