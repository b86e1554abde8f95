"""Who a machine is: to itself, and towards Google's APIs."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

from pydantic import ValidationError

from sandbox.google.guests import Account, GuestCloud, Machine
from sandbox.google.machines import machine_type
from sandbox.google.service import short
from sandbox.guests.attributes import ControlPlaneAttributes, MetadataError, NodeAttributes
from sandbox.kubernetes.joining import JoinError, JoinSecret, Kubelet

CLOUD_SCOPE = "https://www.googleapis.com/auth/cloud-platform"


def system_uuid(machine: Machine) -> str:
    """What the machine's firmware tells its kubelet: the same as long as the machine lives."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, machine.id))


def kubelet(
    machine: Machine,
    wanted: ControlPlaneAttributes | NodeAttributes,
    labels: Mapping[str, str],
    taints: Sequence[Mapping[str, str]],
) -> Kubelet:
    """How the machine registers: with these labels and taints, and with its place, which the script adds.

    Raises MetadataError for a machine type that does not exist.
    """
    kind = machine_type(short(machine.record["machineType"]))
    if kind is None:
        raise MetadataError(f"there is no machine type {machine.record['machineType']}")
    place = {"topology.kubernetes.io/zone": machine.zone, "topology.kubernetes.io/region": machine.region}
    return Kubelet(
        name=machine.short_name,
        system_uuid=system_uuid(machine),
        address=machine.address,
        machine=kind,
        version=wanted.kubernetes_version,
        labels={**labels, **place},
        taints=taints,
        max_pods=wanted.max_pods,
    )


def account(cloud: GuestCloud, machine: Machine) -> Account:
    """The machine's service account. Raises MetadataError where its metadata server would give no usable token."""
    if not machine.service_account:
        raise MetadataError("the machine has no service account: its metadata server gives no token")
    [attached, *_] = machine.record["serviceAccounts"]
    if CLOUD_SCOPE not in attached.get("scopes", []):
        raise MetadataError(f"the machine's access scopes lack {CLOUD_SCOPE}: Secret Manager refuses its token")
    return cloud.account(machine.service_account)


def read_join_secret(cloud: GuestCloud, machine: Machine, name: str) -> JoinSecret:
    """A secret that says how to join, as the machine's service account reads it.

    Raises GoogleError where it may not or there is none, JoinError where the payload is of no use.
    """
    payload = account(cloud, machine).access_secret(name)
    try:
        return JoinSecret.model_validate_json(payload)
    except ValidationError as error:
        raise JoinError(f"{name} is of no use: {error}") from None
