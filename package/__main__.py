"""How the engine starts the package: `python package ADDRESS`."""

import sys
from pathlib import Path

# Python finds modules beside this file; the rooms that the package reads are one folder above.
sys.path[0] = str(Path(__file__).resolve().parents[1])

from pulumi.provider import main  # noqa: E402

from package.provider import PlatformProvider  # noqa: E402

main(PlatformProvider(), sys.argv[1:])
