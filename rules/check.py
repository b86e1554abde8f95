"""Runs the rules that a platform must satisfy beyond the form of each key."""

from collections.abc import Callable, Mapping
from functools import cache, partial
from itertools import islice
from typing import Any, TypeVar

from catalogue.generations import GENERATIONS, MACHINES
from plan.backend import Backend
from plan.platform import Platform
from plan.shape import Shape, resolve
from platform_config.errors import ConfigError, ConfigWarning
from platform_config.fields import INT32, UnknownValueError
from platform_config.partial import is_whole, without
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
from rules.registry import PLATFORM, QUEUES, SHAPE, SIZE, SLICE, Finding, PartialShape, Scope, SliceView
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
SHAPE_KEYS = {"machine_type", "generation", "topology", "chips"}
Value = TypeVar("Value")
Default = TypeVar("Default")


def check(platform: Platform) -> tuple[ConfigError, ...]:
    """Every violation of a rule; empty when the platform breaks none.

    Rules that look at an unknown value (`platform_config.partial`), or at a shape that is refused, are left out.
    """
    backend: Backend | None = known(lambda: platform.backend, None)
    own, found = _shaped("slices", known(lambda: platform.slices, {}))
    remote, found_remote = _shaped("multikueue.slices", known(lambda: _of_workers(platform), {}))
    found += found_remote
    if too_large := list(SIZE.findings(_with(platform, _counted(own), _counted(remote)), "error", backend)):
        # To plan a pool for each of a billion slices would take all memory.
        found += too_large
        own, remote = _uncounted(own), _uncounted(remote)
    platform = _with(platform, own, remote)
    for name, spec in own.items():
        view = SliceView(platform, name, spec, _shape(spec))
        found += (
            finding._replace(path=_joined(f"slices.{name}", finding.path))
            for finding in SLICE.findings(view, "error", backend)
        )
    rest = cache(lambda: _with(platform, _whole(own), _whole(remote)))
    found += PLATFORM.findings(platform, "error", backend, rest)
    # Queues also share slices of a manager's workers.
    shared = platform.model_copy(update={"slices": known(lambda: platform.shared_slices, own)})
    enough = cache(lambda: shared.model_copy(update={"slices": _enough(shared.slices)}))
    found += QUEUES.findings(shared, "error", backend, enough)
    return tuple(ConfigError(*_complete("", finding)) for finding in found)


def known(read: Callable[[], Value], default: Default) -> Value | Default:
    """What `read` gives, or a default if it looks at an unknown value."""
    try:
        return read()
    except UnknownValueError:
        return default


def _shaped(path: str, slices: Mapping[str, Slice]) -> tuple[dict[str, Slice], list[Finding]]:
    """Slices of which a refused shape is unknown, and the refusals."""
    shaped: dict[str, Slice] = {}
    found: list[Finding] = []
    for name, spec in slices.items():
        shaped[name], refusals = _checked_shape(spec) if isinstance(spec, Slice) else (spec, [])
        found += (finding._replace(path=_joined(f"{path}.{name}", finding.path)) for finding in refusals)
    return shaped, found


def _checked_shape(spec: Slice) -> tuple[Slice, list[Finding]]:
    """The slice, of which what is refused is unknown to later rules, since these build on earlier ones."""
    found: list[Finding] = []
    if not spec.__dict__.keys() >= SHAPE_KEYS:  # a key that is not there may be the one that could not be read
        spec = without(spec, *(key for key in SHAPE_KEYS if spec.__dict__.get(key) is None))
    for rule in SHAPE.rules:
        for finding in islice(rule.findings(spec), 1):
            found.append(finding)
            spec = without(spec, *([finding.path] if finding.path else SHAPE_KEYS))
    return spec, found


def _shape(spec: Slice) -> Shape | PartialShape:
    """The shape of a slice, or what is known of it."""
    machine = known(lambda: MACHINES.get(spec.machine_type or ""), None)
    generation = known(lambda: GENERATIONS.get(spec.generation or ""), None)
    return known(lambda: resolve(spec), PartialShape(machine, generation))


def _counted(slices: Mapping[str, Slice]) -> dict[str, Slice]:
    """Those of which the number of hosts is known."""

    def hosts(spec: Slice) -> int:
        return spec.count * resolve(spec).hosts

    return {name: spec for name, spec in slices.items() if known(partial(hosts, spec), None) is not None}


def _uncounted(slices: Mapping[str, Slice]) -> dict[str, Slice]:
    return {name: without(spec, "count") if isinstance(spec, Slice) else spec for name, spec in slices.items()}


def _whole(slices: Mapping[str, Slice]) -> dict[str, Slice]:
    return {name: spec for name, spec in slices.items() if is_whole(spec)}


def _enough(slices: Mapping[str, Slice]) -> dict[str, Slice]:
    """As many slices as queues can own, where their number is unknown."""
    counted = without(Slice.model_construct(count=INT32), *(Slice.model_fields.keys() - {"count"}))
    return {name: spec if "count" in spec.__dict__ else counted for name, spec in slices.items()}


def _of_workers(platform: Platform) -> dict[str, Slice]:
    return platform.multikueue.slices if platform.multikueue and platform.is_manager else {}


def _with(platform: Platform, own: dict[str, Slice], remote: dict[str, Slice]) -> Platform:
    """The platform with other slices of its own, and of a manager's workers."""
    changed: dict[str, Any] = {"slices": own} if "slices" in platform.__dict__ else {}
    if known(lambda: platform.is_manager, False) and platform.multikueue:
        changed["multikueue"] = platform.multikueue.model_copy(update={"slices": remote})
    return platform.model_copy(update=changed)


def warnings(platform: Platform, *, version_known: bool = False) -> tuple[ConfigWarning, ...]:
    """Warnings about legal but risky settings, for a platform without errors.

    `version_known`: somebody has asked GKE for its version, so nothing warns that nobody knows it.
    """
    found = []
    left_out = (VERSION_UNKNOWN,) if version_known else ()
    for name, spec in platform.slices.items():
        view = SliceView(platform, name, spec, resolve(spec))
        said = SLICE.findings(view, "warning", platform.backend, without=left_out)
        found += [_complete(f"slices.{name}", finding) for finding in said]
    found += [_complete("", finding) for finding in PLATFORM.findings(platform, "warning", platform.backend)]
    shared = platform.model_copy(update={"slices": platform.shared_slices})
    found += [_complete("", finding) for finding in QUEUES.findings(shared, "warning", platform.backend)]
    return tuple(ConfigWarning(*finding) for finding in found)


def _joined(*parts: str) -> str:
    return ".".join(part for part in parts if part)


def _complete(base: str, finding: Finding) -> Finding:
    """The finding with its full path in the stack file."""
    return finding._replace(path=below(_joined(base, finding.path)))
