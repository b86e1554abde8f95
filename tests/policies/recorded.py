"""The program's own graph as rules see it: recorded registrations, in preview and update."""

from __future__ import annotations

from typing import Any

from google.protobuf import json_format
from pulumi.runtime import rpc

from policies.registry import Resource, Stack
from policies.values import UNKNOWN
from tests.graph.recording import GraphMonitor

SECRET = rpc._special_secret_sig  # marks a secret value in a registration; the engine hands policies what is inside


def planned(monitor: GraphMonitor) -> Stack:
    """Every resource of a recorded graph but components, which have no inputs of their own.

    The engine shows stack rules what a provider has completed; here they see plain inputs.
    """
    return Stack(tuple(_resource(urn, request) for urn, request in monitor.requests.items() if request.custom))


def _resource(urn: str, request: Any) -> Resource:
    return Resource(
        type=request.type,
        name=request.name,
        urn=urn,
        props=_plain(json_format.MessageToDict(request.object)),
        protect=request.protect,
        delete_before_replace=request.deleteBeforeReplace if request.deleteBeforeReplaceDefined else None,
        provider=request.provider.rpartition("::")[0] or None,
        dependencies=tuple(request.dependencies),
        property_dependencies={name: tuple(each.urns) for name, each in request.propertyDependencies.items()},
    )


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        if value.get(rpc._special_sig_key) == SECRET:
            return _plain(value["value"])
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return UNKNOWN if value == rpc.UNKNOWN else value
