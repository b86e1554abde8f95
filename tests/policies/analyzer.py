"""The policy pack as the engine meets it: its own process and environment, spoken to over gRPC."""

from __future__ import annotations

import copy
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf import empty_pb2
from pulumi.runtime.proto import analyzer_pb2, analyzer_pb2_grpc

from tests.graph.recording import ROOT, GraphMonitor, named

PACK = ROOT / "policies"
ENVIRONMENT = PACK / ".venv" / "bin" / "python"
START_SECONDS = 120
DEFAULT_PROVIDER = "urn:pulumi:dev::tpu-platform::pulumi:providers:gcp::default_10_2_0"


@dataclass(frozen=True)
class Diagnostic:
    """What a policy reports: `mandatory` or not, and the resource it is about."""

    policy: str
    mandatory: bool
    urn: str
    message: str


@dataclass(frozen=True)
class Analyzer:
    """A running pack."""

    pid: int
    stub: Any

    def policies(self) -> dict[str, Any]:
        """What the pack says of each of its policies."""
        return {policy.name: policy for policy in self.stub.GetAnalyzerInfo(empty_pb2.Empty()).policies}

    def configure(self, level: int, settings: Mapping[str, Mapping[str, Any]]) -> None:
        """Give policies a level and settings, as the engine does after it has read `--policy-pack-config`."""
        request = analyzer_pb2.ConfigureAnalyzerRequest()
        for policy, values in settings.items():
            request.policyConfig[policy].enforcementLevel = level
            request.policyConfig[policy].properties.update(values)
        self.stub.Configure(request)

    def resources(self, monitor: GraphMonitor) -> Iterator[Diagnostic]:
        """What resource policies find in a recorded graph."""
        for urn, request in monitor.requests.items():
            if request.custom:
                analyzed = analyzer_pb2.AnalyzeRequest(
                    type=request.type, properties=request.object, urn=urn, name=request.name
                )
                _describe(analyzed, request)
                yield from (_diagnostic(each, urn) for each in self.stub.Analyze(analyzed).diagnostics)

    def stack(self, monitor: GraphMonitor) -> Iterator[Diagnostic]:
        """What stack policies find in a recorded graph."""
        analyzed = analyzer_pb2.AnalyzeStackRequest()
        for urn, request in monitor.requests.items():
            if request.custom:
                resource = analyzed.resources.add(
                    type=request.type,
                    properties=request.object,
                    urn=urn,
                    name=request.name,
                    dependencies=request.dependencies,
                )
                _describe(resource, request)
                for name, sources in request.propertyDependencies.items():
                    resource.propertyDependencies[name].urns.extend(sources.urns)
        yield from (_diagnostic(each, each.urn) for each in self.stub.AnalyzeStack(analyzed).diagnostics)


def _describe(target: Any, request: Any) -> None:
    """Options and provider, as the engine fills them in: it makes a default provider where the program names none."""
    target.options.protect = request.protect
    target.options.deleteBeforeReplace = request.deleteBeforeReplace
    target.options.deleteBeforeReplaceDefined = request.deleteBeforeReplaceDefined
    urn = request.provider.rpartition("::")[0] or DEFAULT_PROVIDER
    target.provider.urn, target.provider.name = urn, urn.rpartition("::")[2]


def _diagnostic(found: Any, urn: str) -> Diagnostic:
    return Diagnostic(found.policyName, found.enforcementLevel == analyzer_pb2.MANDATORY, urn, found.message)


EXECUTABLE = (str(PACK / "run"),)
"""How the engine starts a pack that is named by its executable."""
BY_LANGUAGE_HOST = (str(ENVIRONMENT), "-u", "-m", "pulumi.policy", "127.0.0.1:1", ".")
"""How Pulumi's language host starts a pack that is named by its folder, in that folder."""


@contextmanager
def running(command: Sequence[str] = EXECUTABLE) -> Iterator[Analyzer]:
    """A pack in a process of its own, gone afterwards."""
    assert ENVIRONMENT.exists(), "the policy pack has no environment yet: run `make policies`"
    with subprocess.Popen(command, cwd=PACK, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            port = process.stdout.readline().strip()
            with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                grpc.channel_ready_future(channel).result(timeout=START_SECONDS)
                yield Analyzer(process.pid, analyzer_pb2_grpc.AnalyzerStub(channel))
        finally:
            process.kill()


def replaced(monitor: GraphMonitor, name: str, property_: str, value: Any) -> GraphMonitor:
    """A recorded graph in which one resource has another value of a property."""
    urn, other = named(monitor, name), copy.copy(monitor)
    request = copy.deepcopy(monitor.requests[urn])
    request.object.update({property_: value})
    other.requests = {**monitor.requests, urn: request}
    return other
