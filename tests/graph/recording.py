"""Records every registration the program sends to the engine: no CLI, no cloud, about 20 ms a run.

The monitor sees the raw `RegisterResourceRequest`, so tests can assert on parents, providers, dependencies, protection,
replacement and deletion options. It stands for the engine's resource monitor and differs from it in that nothing is
diffed, no provider checks inputs, and hooks are recorded but never called.
"""

from __future__ import annotations

import json
import runpy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pulumi
from google.protobuf import json_format
from pulumi.runtime import mocks, rpc
from pulumi.runtime.proto import resource_pb2

from components.stack_state import READ_OUTPUTS, READ_RESOURCES
from platform_config import stack_file
from sandbox.google.project_numbers import project_number
from tools.in_process import run

ROOT = Path(__file__).parents[2]
STACK_FILES = sorted(ROOT.glob("Pulumi.*.yaml"))

Requests = dict[str, Any]
STACK = "pulumi:pulumi:Stack"
CLUSTER = "gcp:container/cluster:Cluster"
READ_TEMPLATE = tuple(f"gcp:compute/get{kind}:get{kind}" for kind in ("InstanceTemplate", "RegionInstanceTemplate"))
READ_PROJECT = "gcp:organizations/getProject:getProject"
READ_SECRET = "gcp:secretmanager/getSecretVersionAccess:getSecretVersionAccess"


class Update(mocks.Mocks):
    """A finished update: inputs come back as outputs, beside the computed outputs the program reads."""

    # In texts, {name} is the resource's, so that no two of a type are alike.
    COMPUTED: dict[str, dict[str, Any]] = {
        "gcp:serviceaccount/account:Account": {
            "email": "{name}@my-project.iam.gserviceaccount.com",
            "member": "serviceAccount:{name}@my-project.iam.gserviceaccount.com",
            "name": "projects/my-project/serviceAccounts/{name}@my-project.iam.gserviceaccount.com",
            "uniqueId": "number of {name}",
        },
        "pulumi:index:Stash": {"output": "0123abcd"},
        "gcp:projects/iAMCustomRole:IAMCustomRole": {"name": "projects/my-project/roles/{name}"},
        "gcp:monitoring/notificationChannel:NotificationChannel": {"name": "channel of {name}"},
        "gcp:compute/address:Address": {"address": "address of {name}"},
        "gcp:compute/disk:Disk": {"diskId": "number of {name}", "selfLink": "link of {name}"},
        "gcp:compute/instance:Instance": {"instanceId": "number of {name}", "selfLink": "link of {name}"},
        "gcp:compute/instanceGroup:InstanceGroup": {"selfLink": "link of {name}"},
        "gcp:compute/instanceGroupManager:InstanceGroupManager": {"statuses": [{"isStable": True}]},
        "gcp:compute/instanceTemplate:InstanceTemplate": {"selfLinkUnique": "link of {name}"},
        "gcp:compute/resourcePolicy:ResourcePolicy": {"selfLink": "link of {name}"},
    }

    ENDPOINT = "gke-0123.us-east5.gke.goog"
    PUBLISHED = {"server": "https://10.0.0.5:6443", "ca": "Y2VydGlmaWNhdGU=", "jwks": "eyJrZXlzIjogW119"}
    """What a self-managed control plane has written."""

    TEMPLATES: dict[str, dict[str, Any]] = {}
    """Instance templates of others that a test has made, by name."""

    @classmethod
    def computed(cls, type_: str, name: str) -> dict[str, Any]:
        """The computed outputs of a resource."""
        values = cls.COMPUTED.get(type_, {})
        return {key: value.format(name=name) if isinstance(value, str) else value for key, value in values.items()}

    def made(self, type_: str, name: str) -> tuple[str, dict[str, Any]]:
        """The id of a resource, and its outputs beside its inputs."""
        return f"{name}-id", self.computed(type_, name)

    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str, dict[str, Any]]:
        """What is only read; what is registered is answered by the monitor."""
        identity, computed = self.made(args.typ, args.name)
        return identity, {**computed, **args.inputs}

    def call(self, args: mocks.MockCallArgs) -> dict[str, Any]:
        if args.token == READ_SECRET:
            return {**args.args, "secretData": json.dumps(self.PUBLISHED)}
        return self.read(args)

    def read(self, args: mocks.MockCallArgs) -> dict[str, Any]:
        """What exists before the platform does, and is known in a preview too."""
        if args.token in READ_TEMPLATE and args.args["name"] in self.TEMPLATES:
            return self.TEMPLATES[args.args["name"]]
        if args.token == READ_PROJECT:
            return {**args.args, "number": project_number(str(args.args["projectId"]))}
        raise AssertionError(f"the program made a call that no test knows: {args.token}")


class Preview(Update):
    """A first preview: inputs are known, computed outputs and ids are not."""

    ENDPOINT = rpc.UNKNOWN

    def made(self, type_: str, name: str) -> tuple[str, dict[str, Any]]:
        return "", {}

    def call(self, args: mocks.MockCallArgs) -> dict[str, Any]:
        assert args.token != READ_SECRET, "in a first preview there is nobody yet who could have written a secret"
        return self.read(args)


class GraphMonitor(mocks.MockMonitor):
    """Keeps each request under the URN the engine would give it; refuses a duplicate as the engine does."""

    def __init__(self, outputs: Update, standing: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        """`standing`: outputs in the stack's state, by URN."""
        super().__init__(outputs)
        self.world = outputs
        self.standing = standing or {}
        self.requests: Requests = {}
        self.outputs: dict[str, dict[str, Any]] = {}
        self.hooks: dict[str, Any] = {}

    def make_urn(self, parent: str, type_: str, name: str) -> str:
        chain = parent.split("::")[2] if parent else ""
        qualified = type_ if chain in ("", STACK) else f"{chain}${type_}"
        return f"urn:pulumi:{pulumi.get_stack()}::{pulumi.get_project()}::{qualified}::{name}"

    def RegisterResource(self, request: Any) -> Any:
        urn = self.make_urn(request.parent, request.type, request.name)
        if urn in self.requests:
            raise ValueError(f"Duplicate resource URN {urn!r}")
        self.requests[urn] = request
        if request.type == STACK:
            return resource_pb2.RegisterResourceResponse(urn=urn)
        identity, computed = self.world.made(request.type, request.name)
        answer = resource_pb2.RegisterResourceResponse(urn=urn, id=identity, object=request.object)
        answer.object.update({key: value for key, value in computed.items() if key not in request.object})
        if request.type == CLUSTER:  # the one computed value that lies inside an input block
            answer.object["controlPlaneEndpointsConfig"]["dnsEndpointConfig"]["endpoint"] = self.world.ENDPOINT
        return answer

    def RegisterResourceOutputs(self, request: Any) -> Any:
        self.outputs[request.urn] = json_format.MessageToDict(request.outputs)
        return super().RegisterResourceOutputs(request)

    def Invoke(self, request: Any) -> Any:
        if request.tok not in (READ_OUTPUTS, READ_RESOURCES):
            return super().Invoke(request)
        answer = resource_pb2.ResourceInvokeResponse()
        resources = {urn: {"outputs": dict(outputs)} for urn, outputs in self.standing.items()}
        getattr(answer, "return").update({"outputs": resources})
        return answer

    def _register_hook(self, request: Any) -> None:
        if request.name in self.hooks:
            raise ValueError(f"resource hook already registered for name {request.name!r}")
        self.hooks[request.name] = request

    def RegisterResourceHook(self, request: Any) -> Any:
        self._register_hook(request)
        return super().RegisterResourceHook(request)

    def RegisterErrorHook(self, request: Any) -> Any:
        self._register_hook(request)
        return super().RegisterErrorHook(request)

    def of_type(self, type_: str) -> Requests:
        """All requests whose own type token is `type_`."""
        return {urn: request for urn, request in self.requests.items() if request.type == type_}

    def one(self, type_: str) -> tuple[str, Any]:
        """The only resource of a type."""
        ((urn, request),) = self.of_type(type_).items()
        return urn, request

    @property
    def exports(self) -> dict[str, Any]:
        """What the stack exports."""
        urn, _ = self.one(STACK)
        return self.outputs[urn]


def record(
    program: Callable[[], Any],
    *,
    preview: bool = False,
    config: dict[str, str] | None = None,
    secrets: tuple[str, ...] = (),
    stack: str = "dev",
    standing: Mapping[str, Mapping[str, Any]] | None = None,
) -> GraphMonitor:
    """Run `program` as the language host would; errors in `apply` and in registration fail the caller."""
    monitor = GraphMonitor(Preview() if preview else Update(), standing)
    run(program, monitor, stack=stack, preview=preview, config=config, secrets=secrets)
    return monitor


def stack_config(path: Path) -> dict[str, str]:
    """The configuration the engine would hand to the program for a stack file: full keys, objects as JSON."""
    config = stack_file.read(path)
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in config.items()}


def record_main(
    config: dict[str, str],
    *,
    preview: bool = False,
    stack: str = "dev",
    standing: Mapping[str, Mapping[str, Any]] | None = None,
) -> GraphMonitor:
    """Run the real `__main__.py` with a stack's configuration."""
    return record(
        lambda: runpy.run_path(str(ROOT / "__main__.py"), run_name="__main__"),
        config=config,
        preview=preview,
        stack=stack,
        standing=standing,
    )


def record_stack(path: Path, *, preview: bool = False) -> GraphMonitor:
    """Run the real `__main__.py` on a stack file of the repository."""
    return record_main(stack_config(path), preview=preview, stack=path.name.split(".")[1])


def edges(monitor: GraphMonitor, urn: str) -> set[str]:
    """URNs a resource depends on directly, its provider included."""
    request = monitor.requests[urn]
    found = set(request.dependencies)
    if request.provider:
        found.add(request.provider.rsplit("::", 1)[0])
    return found & set(monitor.requests)


def reachable(monitor: GraphMonitor, urn: str) -> set[str]:
    """URNs a resource depends on, directly or through others."""
    seen: set[str] = set()
    todo = [urn]
    while todo:
        for dependency in edges(monitor, todo.pop()) - seen:
            seen.add(dependency)
            todo.append(dependency)
    return seen


def short(urn: str) -> str:
    """A URN as a reader wants it: `Cluster cluster-gke`."""
    *_, kind, name = urn.split("::")
    return f"{kind.split('$')[-1].split(':')[-1]} {name}"


def inputs(request: Any) -> dict[str, Any]:
    """The inputs of a resource as plain values."""
    result: dict[str, Any] = json_format.MessageToDict(request.object)
    return result


def named(monitor: GraphMonitor, name: str) -> str:
    """The URN of the one custom resource of that name."""
    (urn,) = (urn for urn, request in monitor.requests.items() if request.custom and request.name == name)
    return urn


def inputs_of(monitor: GraphMonitor, name: str) -> dict[str, Any]:
    """The inputs of the one custom resource of that name."""
    return inputs(monitor.requests[named(monitor, name)])


def outline(monitor: GraphMonitor) -> dict[str, Any]:
    """The graph as a reviewer reads it: per resource its parent, dependencies, and the options that guard capacity."""
    result: dict[str, Any] = {}
    made = {urn for urn, request in monitor.requests.items() if request.custom}
    for urn, request in sorted(monitor.requests.items(), key=lambda item: short(item[0])):
        if request.type == STACK:
            continue
        row: dict[str, Any] = {"type": request.type}
        if request.parent.split("::")[2] != STACK:
            row["parent"] = short(request.parent)
        needs = edges(monitor, urn)
        if needs:
            row["needs"] = "everything" if needs == made else sorted(map(short, needs))
        if request.deletedWith:
            row["deleted with"] = short(request.deletedWith)
        if request.HasField("replacement_trigger"):
            row["replaced when"] = f"{request.replacement_trigger.string_value} changes"
        flags = {
            "protect": request.protect,
            "delete before replace": request.deleteBeforeReplace,
            "ignore changes": list(request.ignoreChanges),
            "replace on changes": list(request.replaceOnChanges),
            "error hooks": list(request.hooks.on_error),
            "delete hooks": list(request.hooks.before_delete),
        }
        row.update({key: value for key, value in flags.items() if value})
        result[short(urn)] = row
    return result
