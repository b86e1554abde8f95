"""Creates objects of Kueue's own kinds, after Kueue and once its webhook answers."""

import importlib.metadata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi

from components.kubernetes.cluster_access import ClusterAccess
from plan.kueue_configuration import OBJECTS_API

NAMESPACE_MARK = "."
"""Separates the namespace in a logical name. No name contains it, so two pairs of names never give the same one."""

PATIENCE = pulumi.CustomTimeouts(delete="1m")
"""Kueue deletes a queue when its last workload has ended, maybe in days. An update stops waiting after this time."""


@dataclass(frozen=True)
class KueueObjects:
    """Kueue objects of a component.

    `name`: prefix of their logical names. `after`: what they wait for, directly or through others. `gate`: retries
    while Kueue starts.
    """

    name: str
    parent: pulumi.Resource
    access: ClusterAccess
    after: Sequence[pulumi.Resource]
    gate: pulumi.ResourceHookBinding

    def create(
        self,
        kind: str,
        name: str,
        spec: Mapping[str, Any] | None,
        *,
        depends_on: Sequence[pulumi.Resource] = (),
        namespace: str | None = None,
        annotations: Mapping[str, str] | None = None,
        top_level: Mapping[str, Any] | None = None,
        former: str | None = None,
    ) -> pulumi.CustomResource:
        """A Kueue object. It uses the generic class, because some kinds have fields outside `spec`.

        `depends_on`: what waits for `after` itself. `former`: its logical name in older stacks.
        """
        metadata = {"name": name, "namespace": namespace, "annotations": annotations}
        where = f"{NAMESPACE_MARK}{namespace}" if namespace else ""
        return pulumi.CustomResource(
            f"kubernetes:{OBJECTS_API}:{kind}",
            f"{self.name}-{kind.lower()}-{name}{where}",
            {
                "apiVersion": OBJECTS_API,
                "kind": kind,
                "metadata": {key: value for key, value in metadata.items() if value},
                **({} if spec is None else {"spec": spec}),
                **(top_level or {}),
            },
            pulumi.ResourceOptions.merge(
                self.access.options(self.parent, depends_on=depends_on or self.after, custom_timeouts=PATIENCE),
                pulumi.ResourceOptions(
                    hooks=self.gate,
                    version=importlib.metadata.version("pulumi-kubernetes"),
                    aliases=[pulumi.Alias(name=former)] if former else None,
                ),
            ),
        )
