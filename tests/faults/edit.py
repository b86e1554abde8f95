"""The edit that makes every resource of a stack change in place, so that faults can strike an update of each.

No key of a stack file changes all resources at once. So the campaign's program (`program.py`) runs the real program,
and changes one input of each resource, as an edit of the program would.
"""

from __future__ import annotations

from sandbox.plugins.gcp import schema
from sandbox.plugins.gcp.resources import ROWS
from tests.faults.kinds import CLUSTER, RELEASE

TEXTS = ("description", "displayName")
LABELS = ("labels", "resourceLabels", "userLabels")
OTHERS = {
    "gcp:compute/routerNat:RouterNat": "tcpEstablishedIdleTimeoutSec",
    "gcp:compute/network:Network": "networkFirewallPolicyEnforcementOrder",
    "gcp:monitoring/dashboard:Dashboard": "dashboardJson",
    RELEASE: "maxHistory",
}
"""What changes where a resource has neither a text nor labels that can change in place."""
ANNOTATIONS = "metadata.annotations"


def edited_property(type_: str) -> str | None:
    """The input that the edit changes; None where a type has none that changes in place."""
    if type_ in OTHERS:
        return OTHERS[type_]
    if type_.startswith(CLUSTER):
        return ANNOTATIONS
    table, row = schema.of(type_).properties, ROWS[type_]
    set_apart = {name for setter in row.setters for name in setter.properties}
    for name in (*TEXTS, *LABELS):
        is_changeable = name in table and table[name].is_input and not table[name].force_new
        if is_changeable and name not in row.rules and (row.patches or name in set_apart):
            return name
    return None
