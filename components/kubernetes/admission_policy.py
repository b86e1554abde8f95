"""A ValidatingAdmissionPolicy and the binding that enforces it in the platform's namespaces."""

import pulumi
import pulumi_kubernetes as k8s

from catalogue.labels import NAMESPACE_NAME_LABEL
from components.kubernetes.cluster_access import ClusterAccess
from plan.admission_policy import Match, Policy

POD_SECURITY = "tpu:kubernetes:PodSecurity"
UNQUEUED_TPUS = "tpu:kubernetes:UnqueuedTpus"
CREATED_POOLS = "tpu:kubernetes:CreatedPools"
ACCOUNT_TOKENS = "tpu:kubernetes:AccountTokens"


class AdmissionPolicy(pulumi.ComponentResource):
    """The policy, then its binding. The API server refuses what fails a check, and everything while a check cannot run.

    `type_`: the component's type token, one for each purpose.
    """

    def __init__(
        self,
        type_: str,
        name: str,
        *,
        policy: Policy,
        access: ClusterAccess,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__(type_, name, None, opts)
        made = self._policy(name, policy, access)
        self._binding(name, policy, access, made)
        self.register_outputs({"namespaces": list(policy.namespaces)})

    def _policy(
        self, name: str, policy: Policy, access: ClusterAccess
    ) -> k8s.admissionregistration.v1.ValidatingAdmissionPolicy:
        admission = k8s.admissionregistration.v1
        return admission.ValidatingAdmissionPolicy(
            f"{name}-policy",
            metadata=k8s.meta.v1.ObjectMetaArgs(name=policy.name),
            spec=admission.ValidatingAdmissionPolicySpecArgs(
                failure_policy="Fail",
                match_constraints=_matched(resource_rules=[_rule(match) for match in policy.matches]),
                variables=[
                    admission.VariableArgs(name=variable, expression=expression)
                    for variable, expression in policy.variables.items()
                ],
                validations=[
                    admission.ValidationArgs(expression=check.expression, message=check.message, reason="Forbidden")
                    for check in policy.checks
                ],
            ),
            opts=access.options(self),
        )

    def _binding(self, name: str, policy: Policy, access: ClusterAccess, made: pulumi.Resource) -> None:
        admission = k8s.admissionregistration.v1
        named = k8s.meta.v1.LabelSelectorRequirementArgs(
            key=NAMESPACE_NAME_LABEL,
            operator="NotIn" if policy.elsewhere else "In",
            values=list(policy.namespaces),
        )
        admission.ValidatingAdmissionPolicyBinding(
            f"{name}-binding",
            metadata=k8s.meta.v1.ObjectMetaArgs(name=policy.name),
            spec=admission.ValidatingAdmissionPolicyBindingSpecArgs(
                policy_name=policy.name,
                validation_actions=["Deny"],
                match_resources=_matched(namespace_selector=k8s.meta.v1.LabelSelectorArgs(match_expressions=[named])),
            ),
            opts=access.options(self, depends_on=[made]),
        )


def _matched(
    *,
    resource_rules: list[k8s.admissionregistration.v1.NamedRuleWithOperationsArgs] | None = None,
    namespace_selector: k8s.meta.v1.LabelSelectorArgs | None = None,
) -> k8s.admissionregistration.v1.MatchResourcesArgs:
    """The requests that a policy checks, with the API server's defaults written out.

    A field manager owns this structure as a whole. Without the defaults, the first update of an imported policy would
    change it and conflict with the field manager that created it.
    """
    everything = k8s.meta.v1.LabelSelectorArgs()
    return k8s.admissionregistration.v1.MatchResourcesArgs(
        resource_rules=resource_rules,
        namespace_selector=namespace_selector or everything,
        object_selector=everything,
        match_policy="Equivalent",
    )


def _rule(match: Match) -> k8s.admissionregistration.v1.NamedRuleWithOperationsArgs:
    return k8s.admissionregistration.v1.NamedRuleWithOperationsArgs(
        api_groups=[match.group],
        api_versions=[match.version],
        resources=list(match.resources),
        operations=list(match.operations),
        scope="*",
    )
