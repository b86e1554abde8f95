"""runc for a machine whose root lacks capabilities: a container gets those that it asks for and the machine can give.

runc itself refuses such a container. A TPU host's root lacks nothing; the root of a small virtual machine or of a
container may (SYS_RESOURCE, which pods with DRA claims ask for, and which lowers the score by which the kernel kills
processes when memory is short). Used only there, and called as runc.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
from pathlib import Path

RUNC = "runc"
# linux/capability.h, by number.
NAMES = (
    *("CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP"),
    *("LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER"),
    *("SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE"),
    *("SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD", "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP"),
    *("MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF"),
    "CHECKPOINT_RESTORE",
)


def lacking() -> set[str]:
    """The capabilities that this machine's root lacks: "CAP_SYS_RESOURCE"."""
    lines = Path("/proc/self/status").read_text().splitlines()
    bounding = int(next(line for line in lines if line.startswith("CapBnd:")).split()[1], 16)
    return {f"CAP_{name}" for number, name in enumerate(NAMES) if not bounding >> number & 1}


def _drop(process: Path, key: str | None) -> None:
    """Edits a bundle's config.json, or the process of `runc exec`."""
    document = json.loads(process.read_text())
    described = document[key] if key else document
    missing = lacking()
    for kind, names in described.get("capabilities", {}).items():
        described["capabilities"][kind] = [each for each in names if each not in missing]
    if "CAP_SYS_RESOURCE" in missing and "oomScoreAdj" in described:
        described["oomScoreAdj"] = max(described["oomScoreAdj"], int(Path("/proc/self/oom_score_adj").read_text()))
    process.write_text(json.dumps(document))


def main() -> None:
    arguments = sys.argv[1:]
    for option, following in itertools.pairwise(arguments):
        if option == "--bundle":
            _drop(Path(following) / "config.json", "process")
        elif option == "--process":
            _drop(Path(following), None)
    os.execvp(RUNC, [RUNC, *arguments])


if __name__ == "__main__":
    main()
