"""The kubelet's gRPC interfaces for plugins, as far as the sandbox's plugins speak them.

Sources: k8s.io/kubelet v0.36.3, `pkg/apis/{deviceplugin/v1beta1,pluginregistration/v1,dra/v1}/api.proto`, and
container-storage-interface/spec v1.12, `csi.proto`. Names and numbers of fields are theirs; messages and fields that
are not used are left out, which protobuf allows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_FIELD = descriptor_pb2.FieldDescriptorProto
_TYPES = {"string": _FIELD.TYPE_STRING, "bool": _FIELD.TYPE_BOOL}
# Package -> message -> field -> (number, type). "*" before a type: repeated; "map:T": from string to T.
_PACKAGES: dict[str, dict[str, dict[str, tuple[int, str]]]] = {
    "v1beta1": {
        "Empty": {},
        "DevicePluginOptions": {
            "pre_start_required": (1, "bool"),
            "get_preferred_allocation_available": (2, "bool"),
        },
        "RegisterRequest": {
            "version": (1, "string"),
            "endpoint": (2, "string"),
            "resource_name": (3, "string"),
            "options": (4, "DevicePluginOptions"),
        },
        "Device": {"ID": (1, "string"), "health": (2, "string")},
        "ListAndWatchResponse": {"devices": (1, "*Device")},
        "ContainerAllocateRequest": {"devices_ids": (1, "*string")},
        "AllocateRequest": {"container_requests": (1, "*ContainerAllocateRequest")},
        "DeviceSpec": {"container_path": (1, "string"), "host_path": (2, "string"), "permissions": (3, "string")},
        "ContainerAllocateResponse": {"envs": (1, "map:string"), "devices": (3, "*DeviceSpec")},
        "AllocateResponse": {"container_responses": (1, "*ContainerAllocateResponse")},
    },
    "pluginregistration": {
        "InfoRequest": {},
        "PluginInfo": {
            "type": (1, "string"),
            "name": (2, "string"),
            "endpoint": (3, "string"),
            "supported_versions": (4, "*string"),
        },
        "RegistrationStatus": {"plugin_registered": (1, "bool"), "error": (2, "string")},
        "RegistrationStatusResponse": {},
    },
    "k8s.io.kubelet.pkg.apis.dra.v1": {
        "Claim": {"namespace": (1, "string"), "uid": (2, "string"), "name": (3, "string")},
        "Device": {
            "request_names": (1, "*string"),
            "pool_name": (2, "string"),
            "device_name": (3, "string"),
            "cdi_device_ids": (4, "*string"),
        },
        "NodePrepareResourcesRequest": {"claims": (1, "*Claim")},
        "NodePrepareResourceResponse": {"devices": (1, "*Device"), "error": (2, "string")},
        "NodePrepareResourcesResponse": {"claims": (1, "map:NodePrepareResourceResponse")},
        "NodeUnprepareResourcesRequest": {"claims": (1, "*Claim")},
        "NodeUnprepareResourceResponse": {"error": (1, "string")},
        "NodeUnprepareResourcesResponse": {"claims": (1, "map:NodeUnprepareResourceResponse")},
    },
    "csi.v1": {
        "GetPluginInfoRequest": {},
        "GetPluginInfoResponse": {"name": (1, "string"), "vendor_version": (2, "string")},
        "NodeGetInfoRequest": {},
        "NodeGetInfoResponse": {"node_id": (1, "string")},
        "NodeGetCapabilitiesRequest": {},
        "NodeGetCapabilitiesResponse": {},
        "MountVolume": {
            "fs_type": (1, "string"),
            "mount_flags": (2, "*string"),
            "volume_mount_group": (3, "string"),
        },
        "VolumeCapability": {"mount": (2, "MountVolume")},
        "NodePublishVolumeRequest": {
            "volume_id": (1, "string"),
            "staging_target_path": (3, "string"),
            "target_path": (4, "string"),
            "volume_capability": (5, "VolumeCapability"),
            "readonly": (6, "bool"),
            "volume_context": (8, "map:string"),
        },
        "NodePublishVolumeResponse": {},
        "NodeUnpublishVolumeRequest": {"volume_id": (1, "string"), "target_path": (2, "string")},
        "NodeUnpublishVolumeResponse": {},
    },
}
DEVICE_PLUGIN, REGISTRATION, DRA, CSI = _PACKAGES

Message = Any
"""A class or an object of protobuf's making."""


def _file(package: str, messages: Mapping[str, Mapping[str, tuple[int, str]]]) -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name=f"sandbox/{package}.proto", package=package, syntax="proto3")
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            if kind.startswith("map:"):
                entry = message.nested_type.add(name=f"{_camel(field)}Entry")
                entry.options.map_entry = True
                _add(entry, package, "key", 1, "string")
                _add(entry, package, "value", 2, kind.removeprefix("map:"))
                _add(message, package, field, number, f"*{name}.{entry.name}")
            else:
                _add(message, package, field, number, kind)
    return file


def _add(message: descriptor_pb2.DescriptorProto, package: str, name: str, number: int, kind: str) -> None:
    field = message.field.add(
        name=name, number=number, label=_FIELD.LABEL_REPEATED if kind.startswith("*") else _FIELD.LABEL_OPTIONAL
    )
    plain = kind.removeprefix("*")
    if plain in _TYPES:
        field.type = _TYPES[plain]
    else:
        field.type, field.type_name = _FIELD.TYPE_MESSAGE, f".{package}.{plain}"


def _camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def _classes() -> dict[str, dict[str, Message]]:
    pool = descriptor_pool.DescriptorPool()
    for package, messages in _PACKAGES.items():
        pool.Add(_file(package, messages))
    return {
        package: {
            name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in messages
        }
        for package, messages in _PACKAGES.items()
    }


MESSAGES = _classes()


class Refusal(Exception):
    """What answers a request may raise: a gRPC status, by its name in Go ("FailedPrecondition"), and a message."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code: grpc.StatusCode = getattr(grpc.StatusCode, re.sub(r"(?<=[a-z])(?=[A-Z])", "_", code).upper())


Method = tuple[str, Callable[[Message], Message]]
"""The name of a request, and what answers it."""


def service(
    package: str, name: str, methods: Mapping[str, Method], streams: Mapping[str, Method] = MappingProxyType({})
) -> grpc.GenericRpcHandler:
    """A gRPC service; the answers of its `streams` are iterators of messages."""

    def kinds(request: str) -> dict[str, Any]:
        return {
            "request_deserializer": MESSAGES[package][request].FromString,
            "response_serializer": lambda message: message.SerializeToString(),
        }

    def refusing(answer: Callable[[Message], Message]) -> Callable[[Message, grpc.ServicerContext], Message]:
        def answered(message: Message, context: grpc.ServicerContext) -> Message:
            try:
                return answer(message)
            except Refusal as refusal:
                return context.abort(refusal.code, str(refusal))

        return answered

    handlers = {
        method: grpc.unary_unary_rpc_method_handler(refusing(answer), **kinds(request))
        for method, (request, answer) in methods.items()
    } | {
        method: grpc.unary_stream_rpc_method_handler(refusing(answer), **kinds(request))
        for method, (request, answer) in streams.items()
    }
    return grpc.method_handlers_generic_handler(f"{package}.{name}", handlers)


def call(socket: str, package: str, method: str, request: Message, answer: str, seconds: float = 10) -> Message:
    """Calls "Service/Method" of a server on a unix socket. Raises grpc.RpcError."""
    with grpc.insecure_channel(f"unix://{socket}") as channel:
        unary = channel.unary_unary(
            f"/{package}.{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=MESSAGES[package][answer].FromString,
        )
        return unary(request, timeout=seconds)
