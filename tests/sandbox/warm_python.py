"""Python that is warm: a process that has imported what programs or plugins import, and forks for each of them.

An engine command starts Python four times: for the list of installed packages, for the program, and for two plugins.
Most of its processor time is imports. `warm_up` gives a sandbox a `python3` that hands its arguments, variables, folder
and files over to such a process, passes signals on, and ends as the fork ends.

It stands for an interpreter that starts. Different: modules of packages, and the plugins' own, have been imported
before the variables of the command were set; no module of the program has, so a test may edit its copy. What is
installed is asked once for all commands. A fork is not a child of who started it. If the process that it stands for
is killed, it ends with all that it has started. The tests of the demonstration start everything cold.
"""

from __future__ import annotations

import array
import atexit
import gc
import importlib
import io
import os
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Literal

import psutil

from sandbox.environment import STAND_INS
from sandbox.run_directory import RunDirectory

ROOT = Path(__file__).parents[2]
Kind = Literal["program", "plugins"]
GONE = "the launcher was killed before it said what to start"
_servers: list[subprocess.Popen[bytes]] = []
"""They end with this process, whatever ends it: then their stdin is closed."""
LAUNCHER = """\
#!{python} -IS
import array, os, select, signal, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
variables = (f"{{key}}={{value}}" for key, value in os.environ.items())
fields = [os.getcwd(), os.getppid(), len(sys.argv) - 1, *sys.argv[1:], *variables]
request = "\\0".join(map(str, fields)).encode(errors="surrogateescape")
files = array.array("i", [0, 1, 2])
server.sendmsg([len(request).to_bytes(4, "big")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)])
server.sendall(request)
parent, pid = os.getppid(), int.from_bytes(server.recv(4), "big")
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if pid else ():
    signal.signal(number, lambda number, _: os.kill(pid, number))
while not select.select([server], [], [], 0.5)[0]:
    if os.getppid() != parent:
        server.sendall(b"x")
code = int.from_bytes(server.recv(4), "big", signed=True)
if code < 0:
    if -code != signal.SIGKILL:
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
os._exit(code)
"""


def warm_up(run: RunDirectory) -> None:
    """Lets programs and stand-in plugins of a sandbox be started warm: the language host takes `python3` of PATH."""
    (run.bin / "python3").symlink_to(python("program"))
    for name in STAND_INS:
        [executable] = run.pulumi_home.glob(f"plugins/resource-{name}-*/pulumi-resource-{name}")
        executable.write_text(executable.read_text().replace(sys.executable, str(python("plugins"))))


@cache
def python(kind: Kind) -> Path:
    """An executable for programs or for plugins, one per process; it goes with the process."""
    folder = Path(tempfile.mkdtemp(prefix="warm-"))
    launcher, address = folder / "python3", str(folder / "socket")
    launcher.write_text(LAUNCHER.format(python=sys.executable, address=address))
    launcher.chmod(0o755)
    command = [sys.executable, "-m", __name__, kind, address]
    server = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert server.stdin
    assert server.stdout
    assert server.stdout.readline() == b"ready\n", "the warm Python does not start"
    _servers.append(server)
    return launcher


def main() -> None:
    """Serves forks of a kind at an address, which are the arguments, until stdin ends; then removes the folder."""
    kind, address = sys.argv[1:]
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(address)
    listening.listen(64)
    {"program": _import_what_the_program_imports, "plugins": _import_plugins}[kind]()
    gc.collect()
    gc.freeze()
    assert threading.active_count() == 1, "a fork has one thread only"
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    Server(listening).run()
    shutil.rmtree(Path(address).parent)


def _import_what_the_program_imports() -> None:
    """Without its own modules: a test may edit its copy of them."""
    code = (
        "import components, importlib, pkgutil, sys; before = {*sys.modules}; "
        "[importlib.import_module(each.name) for each in pkgutil.walk_packages(components.__path__, 'components.')]; "
        "print(*(name for name, each in sys.modules.items() if name not in before "
        "and 'site-packages' in (getattr(each, '__file__', None) or '')))"
    )
    printed = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in printed.split():
        with suppress(ImportError):
            importlib.import_module(name)


def _import_plugins() -> None:
    from sandbox.plugins.stubs import without_sdk

    without_sdk()
    for name in ("gcp.plugin", "kubernetes.provider", "provider"):
        importlib.import_module(f"sandbox.plugins.{name}")


class Server:
    """Forks for whoever connects, and tells it how the fork has ended."""

    def __init__(self, listening: socket.socket) -> None:
        self._listening = listening
        self._waiting: dict[int, socket.socket] = {}  # by process
        self._installed: dict[tuple[str, ...], bytes] = {}
        self._path = list(sys.path[1:])

    def run(self) -> None:
        read, write = os.pipe()
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        while True:
            ready, _, _ = select.select([self._listening, read, sys.stdin], [], [])
            if sys.stdin in ready:
                return
            if read in ready:
                os.read(read, 4096)
                self._reap()
            if self._listening in ready:
                connection, _ = self._listening.accept()
                with suppress(OSError):  # whoever asked has gone already
                    self._serve(connection)

    def _reap(self) -> None:
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = ended
                connection = self._waiting.pop(pid)
                with suppress(OSError):
                    connection.sendall(os.waitstatus_to_exitcode(status).to_bytes(4, "big", signed=True))
                connection.close()

    def _serve(self, connection: socket.socket) -> None:
        length, control, _, _ = connection.recvmsg(4, socket.CMSG_SPACE(3 * 4))
        if not control:
            raise ConnectionAbortedError(GONE)
        files = array.array("i", control[0][2])
        size, request = int.from_bytes(length, "big"), b""
        while len(request) < size:
            if not (part := connection.recv(size - len(request))):
                raise ConnectionAbortedError(GONE)
            request += part
        folder, parent, count, *rest = request.decode(errors="surrogateescape").split("\0")
        arguments, variables = rest[: int(count)], dict(each.split("=", 1) for each in rest[int(count) :])
        if arguments[:3] == ["-m", "pip", "list"]:
            os.write(files[1], self._packages(arguments))
            connection.sendall(bytes(8))
            connection.close()
        elif pid := os.fork():
            self._waiting[pid] = connection
            connection.sendall(pid.to_bytes(4, "big"))
        else:
            self._become(connection, list(files), folder, int(parent), arguments, variables)
        for file in files:
            os.close(file)

    def _packages(self, arguments: list[str]) -> bytes:
        known = tuple(arguments)
        if known not in self._installed:
            self._installed[known] = subprocess.run(
                [sys.executable, *arguments], check=True, capture_output=True
            ).stdout
        return self._installed[known]

    def _become(
        self,
        connection: socket.socket,
        files: list[int],
        folder: str,
        parent: int,
        arguments: list[str],
        variables: dict[str, str],
    ) -> None:
        """Turns this process, a fork, into what the arguments say, and does not return."""
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            for told in (signal.SIGCHLD, signal.SIGTERM):
                signal.signal(told, signal.SIG_DFL)
            for number, file in enumerate(files):
                os.dup2(file, number)
            for other in (self._listening, *self._waiting.values()):
                other.close()
            os.setpgid(0, 0)
            gone = threading.Event()
            os.getppid = lambda: 1 if gone.is_set() else parent  # of the process that this one stands for
            os.chdir(folder)
            os.environ.clear()
            os.environ.update(variables)
            threading.Thread(target=_follow, args=(connection, gone), daemon=True).start()
            sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)), encoding="utf-8")
            for name, number in (("stdout", 1), ("stderr", 2)):
                binary = io.BufferedWriter(io.FileIO(number, "w", closefd=False))
                stream = io.TextIOWrapper(binary, encoding="utf-8", errors="backslashreplace", write_through=True)
                stream.reconfigure(line_buffering=True)
                setattr(sys, name, stream)
                setattr(sys, f"__{name}__", stream)
            sys.path[:] = self._path
            code = _run(arguments)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)


def _follow(connection: socket.socket, gone: threading.Event) -> None:
    """Follow the process that this one stands for: note that its parent is gone, and be killed when it is."""
    while connection.recv(1):
        gone.set()
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            child.kill()
    os.kill(os.getpid(), signal.SIGKILL)


def _run(arguments: list[str]) -> int:
    """What an interpreter does with its command line; returns its exit code."""
    safe = False
    while arguments[0] in ("-u", "-P", "-I"):
        safe = arguments.pop(0) != "-u" or safe
    code = 0
    try:
        if arguments[0] == "-c":
            sys.argv = ["-c", *arguments[2:]]
            sys.path[:0] = [] if safe else [""]
            main_module = type(sys)("__main__")
            sys.modules["__main__"] = main_module
            exec(compile(arguments[1], "<string>", "exec"), main_module.__dict__)
        elif arguments[0] == "-m":
            sys.argv = arguments[1:]
            sys.path[:0] = [] if safe else [str(Path.cwd())]
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = arguments
            sys.path[:0] = [str(Path(arguments[0]).resolve().parent)]
            runpy.run_path(arguments[0], run_name="__main__")
    except SystemExit as ended:
        code = _exit_code(ended.code)
    except BaseException:
        traceback.print_exc()
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]  # what the interpreter does before it ends
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    return code


def _exit_code(code: Any) -> int:
    if code is None or isinstance(code, int):
        return int(code or 0) & 0xFF
    print(code, file=sys.stderr)
    return 1


if __name__ == "__main__":
    main()
