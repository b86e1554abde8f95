"""The warm Python that starts programs and plugins of the engine tests."""

from __future__ import annotations

import socket
import subprocess

from tests.sandbox.warm_python import python


def test_a_launcher_that_is_killed_early_does_not_end_the_server() -> None:
    """A launcher is killed with its engine; once that ended the server, or kept it busy forever."""
    launcher = python("plugins")
    address = str(launcher.with_name("socket"))
    with socket.socket(socket.AF_UNIX) as silent:
        silent.connect(address)
    with socket.socket(socket.AF_UNIX) as halfway:
        halfway.connect(address)
        socket.send_fds(halfway, [(100).to_bytes(4, "big")], [0, 1, 2])
        halfway.sendall(b"half a request")
    done = subprocess.run([launcher, "-c", "print('started')"], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "started\n"
