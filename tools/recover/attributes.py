"""Files beside a stack's state that a killed engine left half written.

Where the state is in a folder (`file://`), the engine keeps attributes of each file in a second one, `.attrs`. The file
itself is written elsewhere and renamed; `.attrs` is written in place (upstream: gocloud.dev, blob/fileblob/attrs.go and
fileblob.go). An engine that is killed in between leaves the state as it was, and an `.attrs` that cannot be read: every
command then says `failed to load checkpoint: EOF`. Without its `.attrs` the engine reads the state as it is.
"""

import json
from pathlib import Path

from tools.recover.lock import folder_of


def half_written(backend: str, folder: Path, project: str, stack: str) -> tuple[Path, ...]:
    """The `.attrs` files of a stack's state and locks that cannot be read; none where the state is not in a folder.

    `backend` and `folder` as in `tools.recover.lock.holders`.
    """
    root = folder_of(backend, folder)
    if root is None:
        return ()
    state = (root / ".pulumi" / "stacks" / project).glob(f"{stack}.json*.attrs")
    locks = (root / ".pulumi" / "locks" / "organization" / project / stack).glob("*.attrs")
    return tuple(file for file in sorted((*state, *locks)) if not _is_whole(file))


def _is_whole(file: Path) -> bool:
    try:
        return isinstance(json.loads(file.read_bytes()), dict)
    except FileNotFoundError:  # the engine that wrote it has gone on
        return True
    except ValueError:
        return False
