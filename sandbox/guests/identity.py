"""Who a machine is: to itself, and towards Google's APIs."""

from __future__ import annotations

import uuid

from sandbox.google.guests import Account, GuestCloud, Machine
from sandbox.guests.attributes import MetadataError

CLOUD_SCOPE = "https://www.googleapis.com/auth/cloud-platform"


def system_uuid(machine: Machine) -> str:
    """What the machine's firmware tells its kubelet: the same as long as the machine lives."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, machine.id))


def account(cloud: GuestCloud, machine: Machine) -> Account:
    """The machine's service account. Raises MetadataError where its metadata server would give no usable token."""
    if not machine.service_account:
        raise MetadataError("the machine has no service account: its metadata server gives no token")
    [attached, *_] = machine.record["serviceAccounts"]
    if CLOUD_SCOPE not in attached.get("scopes", []):
        raise MetadataError(f"the machine's access scopes lack {CLOUD_SCOPE}: Secret Manager refuses its token")
    return cloud.account(machine.service_account)
