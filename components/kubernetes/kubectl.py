"""Runs kubectl from a hook, with a kubeconfig that holds no credential."""

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path

MARGIN_SECONDS = 60
"""Time for kubectl to reach the API server and to report."""


class KubectlError(Exception):
    """kubectl failed, or did not end in time; the message is its last line, which says what stopped it."""


async def kubectl(kubeconfig: str, arguments: Sequence[str], seconds: int) -> str:
    """What kubectl prints. `seconds`: how long its work may take. Raises KubectlError, OSError without kubectl."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kubeconfig"
        path.write_text(kubeconfig)
        process = await asyncio.create_subprocess_exec(
            "kubectl",
            f"--kubeconfig={path}",
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            printed, errors = await asyncio.wait_for(process.communicate(), seconds + MARGIN_SECONDS)
        except TimeoutError:
            process.kill()
            await process.wait()
            raise KubectlError(f"kubectl did not end within {seconds + MARGIN_SECONDS} seconds") from None
    if process.returncode:
        raise KubectlError(errors.decode().strip().rpartition("\n")[2])
    return printed.decode()
