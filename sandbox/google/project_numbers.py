"""The numbers of projects, which Google writes where ids can be taken again."""

from __future__ import annotations

import hashlib


def project_number(project: str) -> str:
    """A twelve-digit number that belongs to a project id."""
    return str(10**11 + int(hashlib.sha256(project.encode()).hexdigest()[:9], 16) % (9 * 10**11))
