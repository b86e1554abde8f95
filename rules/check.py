"""Runs the rules that a platform must satisfy beyond the form of each key."""

from collections.abc import Mapping
from typing import Any

from plan.backend import Backend
from plan.platform import Platform
from plan.shape import resolve
from platform_config.errors import ConfigError, ConfigWarning
from platform_config.platform import below
from platform_config.slice import Slice
from rules import (
    capacity,
    clusters,
    controllers,
    hosts,
    monitoring,
    multikueue,
    provisioning,
    queues,
    serving,
    shape,
    size,
    slices,
    teams,
)
from rules import platform as platforms
from rules.registry import PLATFORM, QUEUES, SHAPE, SIZE, SLICE, Finding, Scope, SliceView
from rules.slices import VERSION_UNKNOWN

RULES = (
    capacity,
    clusters,
    controllers,
    hosts,
    monitoring,
    multikueue,
    platforms,
    provisioning,
    queues,
    serving,
    shape,
    size,
    slices,
    teams,
)
"""Importing these modules declares their rules."""
SCOPES: dict[str, Scope[Any]] = {
    "Shape of a slice": SHAPE,
    "All slices together": SIZE,
    "A slice within its platform": SLICE,
    "The platform as a whole": PLATFORM,
    "Queues": QUEUES,
}
"""Every rule there is, by scope."""


def check(platform: Platform, *, backend: Backend | None, complete: bool = True) -> tuple[ConfigError, ...]:
    """Every violation of a rule; empty when the platform breaks none.

    `backend`: the platform's; None if unknown, so that only rules of both back ends run. `complete`: false if malformed
    parts were left out, so that rules about what is missing do not run.
    """
    elsewhere = platform.shared_slices if platform.is_manager else {}
    refusals = _shape_refusals("slices", platform.slices) | _shape_refusals("multikueue.slices", elsewhere)
    errors = list(refusals.values())
    views = [
        SliceView(platform, name, spec, resolve(spec))
        for name, spec in platform.slices.items()
        if f"slices.{name}" not in refusals
    ]
    # Platform rules count pools and addresses, so every slice must have a shape first.
    known = platform.model_copy(update={"slices": {view.name: view.spec for view in views}})
    counted = known
    if platform.multikueue:
        elsewhere = {name: spec for name, spec in elsewhere.items() if f"multikueue.slices.{name}" not in refusals}
        counted = known.model_copy(update={"multikueue": platform.multikueue.model_copy(update={"slices": elsewhere})})
    if too_large := [ConfigError(*_complete("", found)) for found in SIZE.findings(counted, "error", backend)]:
        # To plan a pool for each of a billion slices would take all memory and find nothing more.
        return (*errors, *too_large)
    for view in views:
        errors += (
            ConfigError(*_complete(f"slices.{view.name}", found)) for found in SLICE.findings(view, "error", backend)
        )
    found = PLATFORM.findings(known, "error", backend, complete=complete and not refusals)
    errors += (ConfigError(*_complete("", finding)) for finding in found)
    if complete and not refusals:
        # Queues also share slices of a manager's workers.
        shared = platform.model_copy(update={"slices": platform.shared_slices})
        errors += (ConfigError(*_complete("", found)) for found in QUEUES.findings(shared, "error", backend))
    return tuple(errors)


def _shape_refusals(path: str, slices: Mapping[str, Slice]) -> dict[str, ConfigError]:
    """The first refusal of each shape, by the path of its slice."""
    first = ((f"{path}.{name}", next(SHAPE.findings(spec, "error"), None)) for name, spec in slices.items())
    return {base: ConfigError(*_complete(base, refusal)) for base, refusal in first if refusal is not None}


def warnings(platform: Platform, *, version_known: bool = False) -> tuple[ConfigWarning, ...]:
    """Warnings about legal but risky settings, for a platform without errors.

    `version_known`: somebody has asked GKE for its version, so nothing warns that nobody knows it.
    """
    found = []
    without = (VERSION_UNKNOWN,) if version_known else ()
    for name, spec in platform.slices.items():
        view = SliceView(platform, name, spec, resolve(spec))
        said = SLICE.findings(view, "warning", platform.backend, without=without)
        found += [_complete(f"slices.{name}", finding) for finding in said]
    found += [_complete("", finding) for finding in PLATFORM.findings(platform, "warning", platform.backend)]
    return tuple(ConfigWarning(*finding) for finding in found)


def _complete(base: str, finding: Finding) -> Finding:
    """The finding with its full path in the stack file."""
    return finding._replace(path=below(".".join(part for part in (base, finding.path) if part)))
