"""Makes an update wait until hosts have joined their cluster.

A managed instance group is stable as soon as its machines run, even if they never join. So this asks the cluster. It
does not wait for hosts that Google queues (flex-start): they may come in days.
"""

import asyncio
import base64
import json
import re
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pulumi

from components.compute import published_endpoint
from components.compute.host_groups import HostGroups
from components.gcp.provider_function import ask_google
from components.kubernetes.cluster_access import Endpoint
from plan import hosts
from plan.hosts import HostGroup
from plan.platform import Platform

INTERVAL_SECONDS = 5.0
PATIENCE_SECONDS = 20 * 60
"""A host boots, installs Kubernetes and joins in about five minutes, and tries again where something fails."""
REPORT_SECONDS = 60.0
REFUSED_SECONDS = 60
"""An API server that has just started refuses everything for some seconds, until it has read its rules (RBAC)."""
NAMED = 5
"""How many hosts a message names."""
REQUEST_SECONDS = 30
REFUSAL = re.compile(r"googleapi: Error (\d{3})")
"""The status code in the provider's error for a call that Google answered (google.golang.org/api `googleapi.Error`)."""
UNINITIALIZED = "node.cloudprovider.kubernetes.io/uninitialized"
"""Taint of a node that the cloud-controller-manager has not initialised; nothing runs there."""


class JoinedHosts(pulumi.ComponentResource):
    """Waits until the hosts of some groups are nodes that pods can run on. Waits again when hosts were recreated.

    As for the endpoint, the wait is a hook of a resource of its own. So a preview and an update that only deletes do
    not wait, and a wait that fails does not stop other resources.
    """

    TYPE = "tpu:compute:JoinedHosts"

    def __init__(
        self,
        name: str,
        *,
        platform: Platform,
        groups: Mapping[str, HostGroup],
        made: HostGroups,
        after: Sequence[pulumi.Resource],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """`groups`: to wait for, by short name. `made`: their component. `after`: what hosts need to become nodes."""
        super().__init__(self.TYPE, name, None, opts)
        names = sorted(host for group in groups.values() for host in group.host_names)

        async def wait(_args: pulumi.ResourceHookArgs) -> None:
            await until_joined(platform, names)

        hook = pulumi.ResourceHook(f"await-{name}", wait)
        pulumi.Stash(
            f"{name}-joined",
            input={group.name: made.identity[key] for key, group in groups.items()},
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=[*(made.groups[key] for key in groups), *after],
                hooks=pulumi.ResourceHookBinding(before_create=[hook], before_update=[hook]),
            ),
        )
        self.register_outputs({})


async def until_joined(platform: Platform, names: Sequence[str]) -> None:
    """Returns as soon as hosts of these names are nodes that pods can run on.

    Raises RunError after 20 minutes, with the names of the missing hosts. Raises it sooner where waiting does not help:
    after a minute if the cluster or Google refuses the program, at once if the credential or the answer has an unknown
    form.
    """
    began = time.monotonic()
    report = 0.0
    while True:
        waited = time.monotonic() - began
        trouble = ""
        try:
            missing = absent(names, await _nodes(platform))
        except Exception as error:
            if not _passes(error, waited):
                raise pulumi.RunError(_refused(platform, error)) from error
            missing, trouble = list(names), str(error)
        if not missing:
            return
        if waited >= PATIENCE_SECONDS:
            raise pulumi.RunError(_silent(platform, missing, trouble))
        if waited >= report:
            pulumi.log.info(f"waiting for {len(missing)} of {len(names)} hosts to join the cluster: {_named(missing)}")
            report += REPORT_SECONDS
        await asyncio.sleep(INTERVAL_SECONDS)


def _passes(error: Exception, waited: float) -> bool:
    """Whether an error may pass by itself. The API server may be down for a moment, for example while its machine is
    replaced, and a secret may have no version yet."""
    if isinstance(error, ValueError | LookupError | TypeError | AttributeError):
        return False  # what was read has another form
    if isinstance(error, urllib.error.HTTPError):
        status = error.code
    elif found := REFUSAL.search(str(error)):
        status = int(found[1])
    else:
        return True  # nobody answered
    if status in (401, 403):
        return waited < REFUSED_SECONDS
    return status in (404, 408, 429) or status >= 500


def absent(names: Iterable[str], nodes: Iterable[Mapping[str, Any]]) -> list[str]:
    """The hosts that are not yet nodes that pods can run on."""
    present = {node["metadata"]["name"] for node in nodes if _usable(node)}
    return sorted(set(names) - present)


def _usable(node: Mapping[str, Any]) -> bool:
    ready = any(
        each["type"] == "Ready" and each["status"] == "True" for each in node.get("status", {}).get("conditions", [])
    )
    return ready and all(taint["key"] != UNINITIALIZED for taint in node.get("spec", {}).get("taints", []))


async def _nodes(platform: Platform) -> list[Mapping[str, Any]]:
    """All nodes, read with the program's short-lived credential."""
    _, project, _, secret = hosts.access_secret(platform).split("/")
    reached = await published_endpoint.current(platform)
    read = await ask_google(published_endpoint.READ_SECRET, {"project": project, "secret": secret})
    token = json.loads(read["secretData"])["status"]["token"]
    return await asyncio.to_thread(_list_nodes, reached, token)


def _list_nodes(reached: Endpoint, token: str) -> list[Mapping[str, Any]]:
    request = urllib.request.Request(
        # From the API server's cache: slightly old, and no load on etcd.
        f"{reached.server}/api/v1/nodes?resourceVersion=0",
        headers={"Authorization": f"Bearer {token}", "Accept": "application/json"},
    )
    try:
        trusted = ssl.create_default_context(cadata=base64.b64decode(reached.ca).decode())
    except ssl.SSLError as error:
        raise ValueError(f"the authority of {reached.server} is not a certificate: {error}") from error
    with urllib.request.urlopen(request, timeout=REQUEST_SECONDS, context=trusted) as answer:
        items: list[Mapping[str, Any]] = json.load(answer)["items"]
    return items


def _refused(platform: Platform, error: Exception) -> str:
    return (
        f"cannot ask the cluster which hosts have joined: {type(error).__name__}: {error}. The program uses the "
        f"credential in {hosts.access_secret(platform)}. Whoever runs Pulumi must be allowed to read it, it must have "
        "the form that docs/self-managed.md shows, and the cluster must accept it. Correct this, then run `pulumi up` "
        "again."
    )


def _silent(platform: Platform, missing: Sequence[str], trouble: str) -> str:
    state = f"the cluster does not answer ({trouble}), so it is unknown who joined" if trouble else "not in the cluster"
    return (
        f"{PATIENCE_SECONDS // 60} minutes after their machines were created, {state}: {_named(missing)}. The log of a "
        f"host tells why: gcloud compute instances get-serial-port-output {missing[0]} --zone {platform.zone} "
        f"--project {platform.project}. Hosts keep trying. Correct the cause, then run `pulumi up` again."
    )


def _named(hosts: Sequence[str]) -> str:
    return ", ".join(hosts[:NAMED]) + (f" and {len(hosts) - NAMED} more" if len(hosts) > NAMED else "")
