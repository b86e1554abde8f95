"""Container images without a registry, made from what is on this machine and in the Python package index.

Each is made once, as a tar archive in Docker's form, and unpacked by a containerd into a folder of the per-user cache.
A host begins with a copy of that folder made of hard links, so that its images cost no time and no space. There are:

- `sandbox/pause`: a static busybox that sleeps until it is told to end; `sandbox/done`: one that ends at once.
- `sandbox/python`: this interpreter with its standard library, a shell and the usual commands (busybox).
- `sandbox/jax`: the same and JAX for CPU, pinned with hashes in `jax-requirements.txt`. JAX looks for its cluster as on
  a TPU host, although it finds no chip (JAX_FORCE_TPU_INIT). How many devices it shows, `chips.py` says.
- `sandbox/vllm`: Python and a server with vLLM's routes and no model (`vllm_server.py`), under vLLM's own names.

A host knows each image also under the names that `names_of` lists for it: what manifests ask for. A pod that asks for
anything else gets ImagePullBackOff, since hosts reach no registry.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.hosts.choice import SYSTEM_PATH
from sandbox.kubernetes.assets import AssetError, dra_driver_versions, once, program
from sandbox.toolchain.node_binaries import CONTAINERD_VERSION

PAUSE, DONE, PYTHON, JAX, VLLM = (f"sandbox/{name}:1" for name in ("pause", "done", "python", "jax", "vllm"))
IMAGES = (PAUSE, DONE, PYTHON, JAX, VLLM)
JAX_REQUIREMENTS = Path(__file__).parent / "jax-requirements.txt"
VLLM_SERVER = Path(__file__).parent / "vllm_server.py"
# What runs beside the kubelet instead of in these pods: see dra_plugin.py. The helpers are defaults of the chart.
_DRA_DRIVER = "registry.k8s.io/dra-driver-google/dra-driver-google-tpu"
_DRA_HELPERS = {
    "gcr.io/gke-release/tpu_network_optimizer:tpu_network_optimizer_20250625.00_p0": DONE,
    "gcr.io/gke-release/gke-distroless/bash:gke_distroless_20250807.00_p0": PAUSE,
    "gcr.io/gke-release/vbar_control_agent:latest": PAUSE,
}
SLEEP = ["/bin/sh", "-c", "trap 'exit 0' TERM INT; sleep infinity & wait"]
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LD_LIBRARY_PATH": "/usr/local/lib"}
_JAX_ENVIRONMENT = {"JAX_FORCE_TPU_INIT": "1", "JAX_PLATFORMS": "cpu"}
# A file, the target of a link, the text of a file, or a folder.
Content = Path | str | bytes | None
# A static program has no other sources of names than these.
_NAME_SERVICES = b"passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n"
# What Python's "manylinux" wheels may expect of a system (PEP 599 and later), as far as the wheels here use it.
_EXPECTED_LIBRARIES = (
    "libstdc++.so.6",
    "libgcc_s.so.1",
    *(f"lib{name}.so.1" for name in ("rt", "util")),
    *(f"lib{name}.so.2" for name in ("dl", "resolv")),
    "libpthread.so.0",
)
_LEFT_OUT = re.compile(r"(^|/)(tests?|idlelib|turtledemo|tkinter|lib2to3|ensurepip|config-[^/]*|site-packages)(/|$)")


def names_of(given: Mapping[str, str]) -> dict[str, str]:
    """Every image name that a host knows, and which image it means; `given` are those of the program's adapter.

    Raises AssetError where those mean an image that is not there.
    """
    if unknown := set(given.values()) - set(IMAGES):
        raise AssetError(f"images {', '.join(sorted(unknown))} do not exist; there are {', '.join(IMAGES)}")
    drivers = {f"{_DRA_DRIVER}:v{version}": PAUSE for version in dra_driver_versions()}
    return {
        **{full_name(each): each for each in IMAGES},
        **drivers,
        **_DRA_HELPERS,
        **{full_name(k): v for k, v in given.items()},
    }


def full_name(name: str) -> str:
    """An image's name as containerd writes it: with its registry, "docker.io" where none is named."""
    first, slash, _ = name.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        return name
    return f"docker.io/{name if slash else f'library/{name}'}"


def store() -> Path:
    """The root folder of a containerd that has all images. Raises AssetError."""
    key = hashlib.sha256(b"".join(each.read_bytes() for each in (Path(__file__), JAX_REQUIREMENTS, VLLM_SERVER)))
    key.update(f"{sys.version} {platform.machine()} {CONTAINERD_VERSION}".encode())

    def build(folder: Path) -> None:
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            archive = Path(scratch) / "images.tar"
            _pack_all(Path(scratch), archive)
            unpack(archive, folder / "containerd")

    return once(f"images-{key.hexdigest()[:12]}", build) / "containerd"


def naming(ctr: str, names: Mapping[str, str]) -> str:
    """A shell command by which a running containerd learns its images' other names (see `names_of`)."""
    others = ((full_name(image), name) for name, image in names.items() if name != full_name(image))
    return "\n".join(shlex.join([ctr, "--namespace", "k8s.io", "images", "tag", *pair]) for pair in others)


def copy_store(source: Path, target: Path) -> None:
    """A containerd's root folder again: what may change is copied, the rest is the same files."""
    subprocess.run(["cp", "--archive", "--link", str(source), str(target)], check=True)
    for database in source.rglob("*.db"):
        copy = target / database.relative_to(source)
        copy.unlink()
        shutil.copyfile(database, copy)


# Run as process 1 of namespaces of its own, so that containerd, what it starts and what it mounts go with it.
_UNPACKING = """
"$1" --root "$3" --state "$3.state" --address "$3.socket" --config "$3.toml" > "$3.log" 2>&1 &
for i in $(seq 100); do [ -S "$3.socket" ] && break; sleep 0.1; done
ctr="$2 --address $3.socket --namespace k8s.io" root="$3"
$ctr images import --local --discard-unpacked-layers --digests=false "$4"
$ctr content prune references
rm -rf "$root.state" "$root.socket" "$root.socket.ttrpc"
"""


def unpack(archive: Path, root: Path) -> None:
    """Makes a containerd's root folder that has an archive's images. Raises AssetError."""
    root.with_name(f"{root.name}.toml").write_text("version = 3\n")
    programs = [str(program(name)) for name in ("containerd", "ctr")]
    command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-ec", _UNPACKING, "sh"]
    unpacked = subprocess.run(
        [*command, *programs, str(root), str(archive)],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": SYSTEM_PATH},
    )
    if unpacked.returncode:
        raise AssetError(f"containerd does not take the images:\n{unpacked.stderr.strip()}")


@dataclass(frozen=True)
class Image:
    """What an image consists of: layers as tar files, and what its containers are started with."""

    layers: Sequence[Path]
    command: Sequence[str] = ()
    entrypoint: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=lambda: ENVIRONMENT)


def _pack_all(folder: Path, archive: Path) -> None:
    base = layer(folder / "shell.tar", shell())
    python = layer(folder / "python.tar", _python())
    packages = folder / "jax"
    _install_jax(packages)
    jax = layer(folder / "jax.tar", _tree(packages, _site_packages()))
    vllm = layer(folder / "vllm.tar", _vllm())
    pack(
        archive,
        {
            PAUSE: Image([base], SLEEP),
            DONE: Image([base], ["/bin/true"]),
            PYTHON: Image([base, python], ["python"]),
            JAX: Image([base, python, jax], ["python"], environment={**ENVIRONMENT, **_JAX_ENVIRONMENT}),
            VLLM: Image([base, python, vllm], ["vllm"]),
        },
    )


def pack(archive: Path, images: Mapping[str, Image]) -> None:
    """Writes images into one archive, in Docker's form."""
    layers = list(dict.fromkeys(each for image in images.values() for each in image.layers))
    digests = {each: f"sha256:{hashlib.sha256(each.read_bytes()).hexdigest()}" for each in layers}
    with tarfile.open(archive, "w") as tar:
        manifest = []
        for name, image in images.items():
            configuration = f"{re.sub('[/:]', '-', name)}.json"
            _add(tar, configuration, json.dumps(_configuration(image, digests)).encode())
            names = [each.name for each in image.layers]
            manifest.append({"Config": configuration, "RepoTags": [name], "Layers": names})
        for each in layers:
            tar.add(each, each.name)
        _add(tar, "manifest.json", json.dumps(manifest).encode())


def _configuration(image: Image, digests: Mapping[Path, str]) -> object:
    return {
        "architecture": "amd64" if platform.machine() == "x86_64" else "arm64",
        "os": "linux",
        "config": {
            "Env": [f"{name}={value}" for name, value in image.environment.items()],
            "Entrypoint": list(image.entrypoint),
            "Cmd": list(image.command),
        },
        "rootfs": {"type": "layers", "diff_ids": [digests[each] for each in image.layers]},
    }


def layer(path: Path, entries: Mapping[str, Content]) -> Path:
    """A tar of these, by their place in the image; all of it is root's."""
    with tarfile.open(path, "w") as tar:
        for place, content in entries.items():
            info = tarfile.TarInfo(place)
            info.mode = 0o755
            if content is None:
                info.type = tarfile.DIRTYPE
                info.mode = 0o1777 if place == "tmp" else 0o755
                tar.addfile(info)
            elif isinstance(content, bytes):
                info.size, info.mode = len(content), 0o644
                tar.addfile(info, io.BytesIO(content))
            elif isinstance(content, str):
                info.type, info.linkname = tarfile.SYMTYPE, content
                tar.addfile(info)
            else:
                info.size = content.stat().st_size
                info.mode = 0o755 if content.stat().st_mode & 0o111 else 0o644
                with content.open("rb") as file:
                    tar.addfile(info, file)
    return path


def shell() -> dict[str, Content]:
    """busybox under each of its names, and the files that programs look for in /etc."""
    busybox = shutil.which("busybox", path=SYSTEM_PATH)
    assert busybox
    names = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split()
    folders = ("bin", "etc", "usr", "usr/bin", "usr/local", "usr/local/bin", "usr/local/lib", "root", "tmp", "var")
    accounts: dict[str, Content] = {f"etc/{name}": Path("/etc") / name for name in ("passwd", "group")}
    return {
        **dict.fromkeys(folders),
        "bin/busybox": Path(busybox).resolve(),
        **{f"bin/{name}": "busybox" for name in names if name != "busybox"},
        **accounts,
        "etc/nsswitch.conf": _NAME_SERVICES,
    }


def _python() -> dict[str, Content]:
    """This interpreter below /usr/local, wherever it lies here, with the libraries of the system that it needs."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    executable = Path(sys.executable).resolve()
    library = Path(sysconfig.get_path("stdlib"))
    stdlib = {
        place: content
        for place, content in _tree(library, f"usr/local/lib/{version}").items()
        if not _LEFT_OUT.search(place.removeprefix(f"usr/local/lib/{version}/"))
    }
    return {
        f"usr/local/bin/{version}": executable,
        "usr/local/bin/python3": version,
        "usr/local/bin/python": version,
        **stdlib,
        **shared_libraries([executable, *library.glob("lib-dynload/*.so")]),
        **shared_libraries(_found_by_linker(*_EXPECTED_LIBRARIES)),
    }


def _vllm() -> dict[str, Content]:
    """The server as the module that manifests start, and as the command `vllm`."""
    packages = ["vllm", "vllm/entrypoints", "vllm/entrypoints/openai"]
    module = f"{_site_packages()}/{packages[-1]}/api_server.py"
    return {
        _site_packages(): None,
        **{f"{_site_packages()}/{each}": None for each in packages},
        module: VLLM_SERVER,
        "usr/local/bin/vllm": f"/{module}",
    }


def _tree(folder: Path, place: str) -> dict[str, Content]:
    entries: dict[str, Content] = {place: None}
    for each in sorted(folder.rglob("*")):
        inside = f"{place}/{each.relative_to(folder)}"
        entries[inside] = None if each.is_dir() else each
    return entries


def shared_libraries(programs: Iterable[Path]) -> dict[str, Content]:
    """What `ldd` lists for the programs: Python's own beside it, the others where they lie here."""
    found: dict[str, Content] = {}
    for each_program in programs:
        listed = subprocess.run(["ldd", str(each_program)], capture_output=True, text=True, check=False).stdout
        for path in (Path(each) for each in re.findall(r"(/\S+) \(0x", listed)):
            inside = f"usr/local/lib/{path.name}" if path.name.startswith("libpython") else str(path)[1:]
            found[inside] = path.resolve()
        if each_program.name.startswith("lib"):
            found[str(each_program)[1:]] = each_program.resolve()
    return found


def _found_by_linker(*names: str) -> list[Path]:
    """Libraries of the system that wheels expect."""
    folders = [Path("/lib") / f"{platform.machine()}-linux-gnu", Path("/usr/lib64"), Path("/usr/lib")]
    return [path for name in names for path in [folder / name for folder in folders if (folder / name).exists()][:1]]


def _site_packages() -> str:
    return f"usr/local/lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"


def _install_jax(folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    options = ["--only-binary", ":all:", "--require-hashes", "-r", str(JAX_REQUIREMENTS), "--target", str(folder)]
    installed = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    if installed.returncode:
        raise AssetError(f"JAX for the image {JAX} cannot be installed:\n{installed.stderr.strip()}")
    for each in [*folder.rglob("tests"), *folder.glob("*/_src/test*")]:
        shutil.rmtree(each, ignore_errors=True)


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    tar.addfile(info, io.BytesIO(content))
