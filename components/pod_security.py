"""Pod Security where pods may add the capabilities that the TPU runtime needs under DRA."""

import pulumi

from components.access import ClusterAccess
from components.admission import admission_policy
from spec.admission import Policy


class PodSecurity(pulumi.ComponentResource):
    """The policy that enforces all of `baseline` but these capabilities, since Kubernetes' own enforcement has no
    exemption for them."""

    TYPE = "tpu:kubernetes:PodSecurity"

    def __init__(
        self, name: str, *, policy: Policy, access: ClusterAccess, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(self.TYPE, name, None, opts)
        admission_policy(name, policy, access, self)
        self.register_outputs({"namespaces": list(policy.namespaces)})
