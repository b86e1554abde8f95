"""What a platform must satisfy beyond the type of each key: one function a rule, with its reason and upstream source.

`check` runs them all. Rules come in scopes: `shape` (one slice by itself, in order; the first refusal ends it, since
later ones build on it), `size` (all slices together, before anything is made for each), `slice` (a slice within its
platform), `platform` and `queues`. A rule may be one back end's:
node pools of GKE, or managed instance groups of Compute Engine. A rule yields a `Finding` for each thing to put right;
the docs table is made from this registry.
"""

from collections.abc import Mapping

from spec.errors import SpecError, SpecWarning
from spec.platform import Backend, Platform, below
from spec.rules import clusters as _cluster_rules  # noqa: F401  importing the modules declares their rules
from spec.rules import hosts as _host_rules  # noqa: F401
from spec.rules import multikueue as _multikueue_rules  # noqa: F401
from spec.rules import platform as _platform_rules  # noqa: F401
from spec.rules import queues as _queue_rules  # noqa: F401
from spec.rules import shape as _shape_rules  # noqa: F401
from spec.rules import size as _size_rules  # noqa: F401
from spec.rules import slices as _slice_rules  # noqa: F401
from spec.rules.registry import PLATFORM, QUEUES, SHAPE, SIZE, SLICE, Finding, SliceView
from spec.shape import resolve
from spec.slice import Slice


def check(platform: Platform, *, backend: Backend | None, complete: bool = True) -> tuple[SpecError, ...]:
    """Every violation of a rule; empty when the platform is sound.

    `backend`: the platform's; None: it is not known what was meant, so only rules of both back ends speak.
    `complete`: the platform is all that a person wrote, so what a queue does not find there does not exist.
    """
    elsewhere = platform.shared_slices if platform.is_manager else {}
    refusals = _shape_refusals("slices", platform.slices) | _shape_refusals("multikueue.slices", elsewhere)
    errors = list(refusals.values())
    views = [
        SliceView(platform, name, spec, resolve(spec))
        for name, spec in platform.slices.items()
        if f"slices.{name}" not in refusals
    ]
    # Platform rules count pools and addresses, for which every slice must have a shape.
    known = platform.model_copy(update={"slices": {view.name: view.spec for view in views}})
    counted = known
    if platform.multikueue:
        elsewhere = {name: spec for name, spec in elsewhere.items() if f"multikueue.slices.{name}" not in refusals}
        counted = known.model_copy(update={"multikueue": platform.multikueue.model_copy(update={"slices": elsewhere})})
    if too_large := [SpecError(*_complete("", found)) for found in SIZE.findings(counted, "error", backend)]:
        # A pool for each of a billion slices would take all memory, and say nothing more.
        return (*errors, *too_large)
    for view in views:
        errors += (
            SpecError(*_complete(f"slices.{view.name}", found)) for found in SLICE.findings(view, "error", backend)
        )
    errors += (SpecError(*_complete("", found)) for found in PLATFORM.findings(known, "error", backend))
    if complete and not refusals:
        # Queues share out slices wherever these are.
        shared = platform.model_copy(update={"slices": platform.shared_slices})
        errors += (SpecError(*_complete("", found)) for found in QUEUES.findings(shared, "error", backend))
    return tuple(errors)


def _shape_refusals(path: str, slices: Mapping[str, Slice]) -> dict[str, SpecError]:
    """The first refusal of each shape, by the path of its slice."""
    first = ((f"{path}.{name}", next(SHAPE.findings(spec, "error"), None)) for name, spec in slices.items())
    return {base: SpecError(*_complete(base, refusal)) for base, refusal in first if refusal is not None}


def warnings(platform: Platform) -> tuple[SpecWarning, ...]:
    """What is legal but likely to disappoint, of a platform without errors."""
    found = []
    for name, spec in platform.slices.items():
        view = SliceView(platform, name, spec, resolve(spec))
        found += [_complete(f"slices.{name}", finding) for finding in SLICE.findings(view, "warning", platform.backend)]
    found += [_complete("", finding) for finding in PLATFORM.findings(platform, "warning", platform.backend)]
    return tuple(SpecWarning(*finding) for finding in found)


def _complete(base: str, finding: Finding) -> Finding:
    """The finding with its path as it stands in the stack file."""
    return finding._replace(path=below(".".join(part for part in (base, finding.path) if part)))
