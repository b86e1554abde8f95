"""Entry point for `pulumi preview --policy-pack policies`. Prints only the port that it serves on."""

import os
import sys
import threading
import time
from pathlib import Path

# The engine starts this file as a script, so the checkout, with the rules and the catalogue, is added to the path.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pulumi_policy import EnforcementLevel, PolicyPack

from policies.pack import NAME, policies

PARENT_POLL_SECONDS = 1.0


def _end_with(parent: int) -> None:
    """Ends this process when the engine is gone: otherwise the pack would serve forever after the engine is killed."""
    while os.getppid() == parent:
        time.sleep(PARENT_POLL_SECONDS)
    os._exit(0)


threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
PolicyPack(NAME, policies(), enforcement_level=EnforcementLevel.MANDATORY)
