"""The startup scripts of machines without GKE: static text, whose settings are the machine's metadata."""

from functools import cache
from pathlib import Path
from typing import Literal

FOLDER = Path(__file__).parent / "bootstrap"
COMMON = "common.sh"


@cache
def boot_script(role: Literal["control_plane", "node"]) -> str:
    """The text of a role's script, behind the functions that both scripts use."""
    return "".join((FOLDER / name).read_text() for name in (COMMON, f"{role}.sh"))
