"""What comes of a case: a platform, or errors with a path each; and whether anything later refuses what was accepted.

`later` stands for a preview and an update: the real program registers its graph, objects are held against Kubernetes'
strict schemas and Kueue's rules, and Google's resources are created in the emulated cloud.
"""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
from google.protobuf import json_format

from plan.platform import Platform
from platform_config.capacity import Reservation
from platform_config.errors import ConfigErrors
from platform_config.platform import PLATFORM_KEY
from platform_config.reading import PROJECT_KEY, given
from platform_config.stack_file import read
from rules.load import load_platform, load_stack_file
from sandbox.plugins.provider import ProviderError
from tests.graph.emulated import EmulatedCloud, lay_foreign, recorded
from tests.graph.recording import GraphMonitor
from tests.platforms import PROJECT
from tests.schema.test_kubernetes_objects import RELEASE, validate, whole_numbers
from tools.explain import as_json
from tools.schema import stack_file_schema

from .generate import ACCOUNT
from .webhooks import refused as refused_by_webhooks

SECONDS = 2.0
"""CPU time that a case may take, whatever is written."""
MEMORY_MB = 400
"""Memory that a case may need beyond what the process has."""
SCHEMA = jsonschema.Draft202012Validator(stack_file_schema())
LACKING = ("Error 404", "is unsupported")
"""Of the answers of a cloud: a network, key, image or secret of somebody's, or a version, is not there."""
Json = dict[str, Any]


class Broken(AssertionError):
    """A promise that a case breaks. `promise`: crash, slow, large, without a path, or accepted and then refused."""

    def __init__(self, promise: str, reason: str) -> None:
        self.promise = promise
        super().__init__(f"{promise}: {reason}")


@dataclass(frozen=True)
class Outcome:
    """A case that keeps the promises: the platform, or None if it was refused, and the CPU time it took."""

    platform: Platform | None
    seconds: float


def of_platform(raw: Any) -> Outcome:
    """The outcome of a platform, as JSON would give it."""
    outcome = _outcome(lambda: load_platform(raw, project=PROJECT))
    if outcome.platform is not None:
        _fits_the_schema(raw, PROJECT)
    return outcome


def of_text(text: str, path: Path) -> Outcome:
    """The outcome of a stack file with that text."""
    path.write_bytes(text.encode(errors="surrogatepass"))
    outcome = _outcome(lambda: load_stack_file(path))
    if outcome.platform is not None:
        config = read(path)
        raw = config[PLATFORM_KEY]
        _fits_the_schema(given(raw) if isinstance(raw, str) else raw, config[PROJECT_KEY])
    return outcome


def _outcome(load: Callable[[], Platform]) -> Outcome:
    before, memory = time.process_time(), _peak_mb()
    platform = None
    try:
        platform = load()
        text = as_json(platform)
    except ConfigErrors as refusal:
        for error in refusal.errors:
            if not error.path or not error.message:
                raise Broken("without a path", str(error)) from None
        if not refusal.errors:
            raise Broken("without a path", "no error at all") from None
    except Exception as error:
        raise Broken("crash", f"{type(error).__name__}: {error}"[:2000]) from error
    else:
        json.loads(text, parse_constant=_no_number)
    seconds = time.process_time() - before
    if seconds > SECONDS:
        raise Broken("slow", f"{seconds:.1f} s")
    if _peak_mb() - memory > MEMORY_MB:
        raise Broken("large", f"{_peak_mb() - memory} MB")
    return Outcome(platform, seconds)


def _no_number(name: str) -> None:
    raise Broken("crash", f"{name} is no number of JSON")


def _peak_mb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def _fits_the_schema(raw: Any, project: str) -> None:
    config = {"config": {PROJECT_KEY: project, PLATFORM_KEY: raw}}
    for error in SCHEMA.iter_errors(config):
        raise Broken("refused by the JSON schema", f"{error.json_path}: {error.message}"[:500])


def registered(raw: Json) -> GraphMonitor:
    """The graph of an accepted platform; its objects are what Kubernetes and Kueue take.

    But for GKE's ComputeClasses, whose schema is not public.
    """
    try:
        monitor = recorded(raw)
    except Exception as error:
        raise Broken("refused by the graph", f"{type(error).__name__}: {error}"[:2000]) from error
    manifests = []
    for request in monitor.requests.values():
        if request.type.startswith("kubernetes:") and request.type != RELEASE and "ComputeClass" not in request.type:
            _, version, kind = request.type.split(":")
            manifest = whole_numbers(json_format.MessageToDict(request.object))
            manifests.append({"apiVersion": version.removeprefix("core/"), "kind": kind, **manifest})
    for manifest in manifests:
        try:
            validate(manifest)
        except (jsonschema.ValidationError, kubernetes_validate.ValidationError) as error:
            where = f"{manifest['kind']} {manifest['metadata']['name']}"
            raise Broken("refused by Kubernetes", f"{where}: {error.message}"[:500]) from None
    for reason in refused_by_webhooks([manifest for manifest in manifests if not manifest["kind"].endswith("Patch")]):
        raise Broken("refused by Kueue", reason)
    return monitor


def stands_alone(platform: Platform) -> bool:
    """Whether the program asks nobody for anything: neither for an instance template nor for a worker's stack."""
    workers = platform.multikueue.workers.values() if platform.multikueue else ()
    templates = [spec.instance_template for spec in platform.slices.values()]
    return not any(templates) and not any(worker.stack for worker in workers)


def created(platform: Platform, monitor: GraphMonitor, cloud: EmulatedCloud) -> None:
    """Create the Google resources of a graph in the emulated cloud, where accounts, reservations and a network exist.

    What else a platform names and this cloud lacks is no finding.
    """
    cloud.control("reset")
    cloud.control("zones", zone=platform.zone, generations=["v4", "v5e", "v5p", "v6e", "tpu7x"])
    network = platform.network
    ranges = (
        {"pods": network.pods_range, "services": network.services_range or "q"} if network.kind == "existing" else {}
    )
    lay_foreign(cloud, platform.region, **ranges)
    cloud.call("POST", f"/iam/v1/projects/{PROJECT}/serviceAccounts", {"accountId": ACCOUNT.partition("@")[0]})
    for name, owner, machine in sorted(_reservations(platform)):
        shared = {} if owner == platform.project else {"share_with": [platform.project]}
        body = {"zone": platform.zone, "name": name, "machine_type": machine, "project": owner}
        cloud.control("reservations", **body, count=100_000, **shared)
    try:
        cloud.make(monitor)
    except (ProviderError, AssertionError) as error:
        if any(words in str(error) for words in LACKING):
            return
        raise Broken("refused by the emulator", str(error)[:1000]) from error


def _reservations(platform: Platform) -> set[tuple[str, str, str]]:
    """Name, owner and machine type; of several machine types by one name, one is made, as Google has it."""
    found = {
        (capacity.name, capacity.project or platform.project): plan.machine.name
        for plan in platform.slice_plans
        for capacity in platform.slices[plan.group].capacity
        if isinstance(capacity, Reservation)
    }
    return {(name, owner, machine) for (name, owner), machine in found.items()}
