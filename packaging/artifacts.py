"""Shared code of the packaging scripts: build metadata, the static binary, and reproducible archives.

Timestamps are SOURCE_DATE_EPOCH (default: the date of the commit); entries are sorted and owned by root.
"""

import gzip
import io
import os
import pathlib
import re
import struct
import subprocess
import sys
import tarfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def fail(text):
    sys.exit(f"{pathlib.Path(sys.argv[0]).name}: {text}")


def output(*command):
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def version():
    return re.search(r'^\[workspace\.package\]\nversion = "(.*)"$', (ROOT / "Cargo.toml").read_text(), re.M).group(1)


def commit():
    """The commit of the source tree; an unpacked release sets $WAYPOST_COMMIT."""
    return os.environ.get("WAYPOST_COMMIT") or output("git", "rev-parse", "HEAD")


def epoch():
    return int(os.environ.get("SOURCE_DATE_EPOCH") or output("git", "log", "-1", "--format=%ct"))


def machine():
    return os.uname().machine


def architecture():
    """This machine's architecture, in the naming of Debian and OCI."""
    return ARCHITECTURES.get(machine()) or fail(f"no name is known for the architecture {machine()}")


def build():
    """Builds the static binary and returns its path. Uses musl if the toolchain has that target, otherwise a static glibc."""
    musl = f"{machine()}-unknown-linux-musl"
    has_musl = (pathlib.Path(output("rustc", "--print", "sysroot")) / "lib/rustlib" / musl).is_dir()
    target = musl if has_musl else f"{machine()}-unknown-linux-gnu"
    cargo_home = os.environ.get("CARGO_HOME", str(pathlib.Path.home() / ".cargo"))
    flags = ["-Ctarget-feature=+crt-static", f"--remap-path-prefix={ROOT}=/waypost", f"--remap-path-prefix={cargo_home}=/cargo"]
    environment = os.environ | {
        "CARGO_ENCODED_RUSTFLAGS": "\x1f".join(flags),
        "CARGO_INCREMENTAL": "0",
        "CFLAGS": f"-ffile-prefix-map={ROOT}=/waypost -ffile-prefix-map={cargo_home}=/cargo",
        "SOURCE_DATE_EPOCH": str(epoch()),
        "WAYPOST_COMMIT": commit(),
    }
    if has_musl:
        environment[f"CC_{musl.replace('-', '_')}"] = "musl-gcc"
    subprocess.run(["cargo", "build", "--locked", "--release", "-p", "waypost", "--target", target], cwd=ROOT, check=True, env=environment)
    return pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / target / "release/waypost"


def binary(path, dynamic=False):
    """The binary at this path, or a newly built one. It must be static unless `dynamic` is set."""
    path = pathlib.Path(path) if path else build()
    if not dynamic and not is_static(path):
        fail(f"{path} needs a dynamic loader; leave out --binary to build a static one")
    return path


def is_static(path):
    """Whether an ELF file (64-bit, little-endian) has no dynamic loader."""
    data = path.read_bytes()
    if data[:6] != b"\x7fELF\x02\x01":
        fail(f"{path} is no program for this machine")
    offset, size, count = struct.unpack_from("<Q", data, 32)[0], *struct.unpack_from("<HH", data, 54)
    return all(struct.unpack_from("<I", data, offset + size * at)[0] != 3 for at in range(count))


def tar(entries):
    """A tar archive of (name, content, mode); content None denotes a directory. Parent directories are added."""
    known = {name: (content, mode) for name, content, mode in entries}
    for name in list(known):
        for parent in pathlib.PurePosixPath(name).parents:
            if str(parent) != ".":
                known.setdefault(str(parent), (None, 0o755))
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, (content, mode) in sorted(known.items()):
            info = tarfile.TarInfo(name)
            info.mode, info.mtime, info.uname, info.gname = mode, epoch(), "root", "root"
            if content is None:
                info.type = tarfile.DIRTYPE
            else:
                info.size = len(content)
            archive.addfile(info, None if content is None else io.BytesIO(content))
    return out.getvalue()


def compressed(data):
    """gzip-compressed data without file name and timestamp."""
    return gzip.compress(data, 9, mtime=0)


def generated(program):
    """Manual pages and shell completions: (path below /usr/share, content)."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([program, "man", folder], check=True, stdout=subprocess.DEVNULL)
        pages = sorted(pathlib.Path(folder).iterdir())
        out = [(f"man/man1/{page.name}.gz", compressed(page.read_bytes())) for page in pages]
    places = {"bash": "bash-completion/completions/waypost", "zsh": "zsh/vendor-completions/_waypost", "fish": "fish/vendor_completions.d/waypost.fish"}
    for shell, place in places.items():
        out.append((place, subprocess.run([program, "completion", shell], check=True, stdout=subprocess.PIPE).stdout))
    return out


def documents():
    """README, licence and the book: (path, content)."""
    files = [ROOT / name for name in ("README.md", "LICENSE", "CHANGELOG.md", "SECURITY.md", "ARCHITECTURE.md", "CONTRIBUTING.md")]
    files += [path for path in sorted((ROOT / "docs").rglob("*")) if path.is_file()]
    return [(str(path.relative_to(ROOT)), path.read_bytes()) for path in files]
