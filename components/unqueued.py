"""The refusal of pods that ask for TPUs past the queues."""

import pulumi

from components.access import ClusterAccess
from components.admission import admission_policy
from spec.admission import Policy


class UnqueuedTpus(pulumi.ComponentResource):
    """The policy that makes quotas hold: in namespaces of queues chips are asked for through a queue, or not at all."""

    TYPE = "tpu:kubernetes:UnqueuedTpus"

    def __init__(
        self, name: str, *, policy: Policy, access: ClusterAccess, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(self.TYPE, name, None, opts)
        admission_policy(name, policy, access, self)
        self.register_outputs({"namespaces": list(policy.namespaces)})
