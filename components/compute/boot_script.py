"""The startup scripts of machines without GKE: static text that reads its settings from the machine's metadata."""

from functools import cache
from pathlib import Path
from typing import Literal

FOLDER = Path(__file__).parent / "bootstrap"
PARTS = {
    "node": ("common", "host", "node"),
    "control_plane": ("common", "host", "cluster", "publish", "upkeep", "control_plane"),
}


@cache
def boot_script(role: Literal["control_plane", "node"]) -> str:
    """The text of a role's script: its parts in order. Only the last part runs something."""
    return "".join((FOLDER / f"{part}.sh").read_text() for part in PARTS[role])
