"""A MultiKueue manager: how to reach the workers, and the admission check that hands admitted work to one of them."""

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from components.kubernetes.cluster_access import ClusterAccess
from components.kubernetes.kueue_objects import KueueObjects
from plan import multikueue
from plan.charts import KUEUE
from plan.platform import Platform
from platform_config.multikueue import Worker

CONTROLLER = "kueue.x-k8s.io/multikueue"
KUBECONFIG_KEY = "kubeconfig"


class MultiKueueManager(pulumi.ComponentResource):
    """For each worker a Secret with its kubeconfig and a MultiKueueCluster; then one configuration and one check.

    Nothing here waits for workers to answer, since MultiKueue expects clusters to come and go. The queues wait for the
    check, which is active as soon as one worker is.
    """

    TYPE = "tpu:kubernetes:MultiKueueManager"
    check: pulumi.CustomResource

    def __init__(
        self,
        name: str,
        *,
        platform: Platform,
        access: ClusterAccess,
        workers: Mapping[str, Worker],
        after: Sequence[pulumi.Resource],
        gate: pulumi.ResourceHookBinding,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__(self.TYPE, name, None, opts)
        self._name, self._platform, self._access, self._after = name, platform, access, after
        kueue_object = KueueObjects(name, self, access, after, gate).create
        clusters = []
        for worker, source in workers.items():
            secrets = [self._kubeconfig(worker, source.stack)] if source.stack else []
            location = source.secret or secret_name(worker)
            kubeconfig = {"locationType": "Secret", "location": location}
            spec = {"clusterSource": {"kubeConfig": kubeconfig}}
            clusters.append(kueue_object("MultiKueueCluster", worker, spec, depends_on=secrets))
        config = kueue_object("MultiKueueConfig", multikueue.CHECK, {"clusters": list(workers)}, depends_on=clusters)
        parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": multikueue.CHECK}
        self.check = kueue_object(
            "AdmissionCheck",
            multikueue.CHECK,
            {"controllerName": CONTROLLER, "parameters": parameters},
            depends_on=[config],
        )
        self.register_outputs({"workers": list(workers)})

    def _kubeconfig(self, worker: str, stack: str) -> k8s.core.v1.Secret:
        """The Secret that Kueue reads, made from the outputs of the worker's stack."""
        reference = pulumi.StackReference(
            f"{self._name}-{worker}", stack_name=stack, opts=pulumi.ResourceOptions(parent=self)
        )
        checked: pulumi.Output[str] = pulumi.Output.all(
            reference.get_output(multikueue.STACK_OUTPUT), reference.get_output(multikueue.QUEUES_OUTPUT)
        ).apply(lambda outputs: self._checked(worker, stack, *outputs))
        kubeconfig: pulumi.Output[str] = pulumi.Output.secret(checked)
        return k8s.core.v1.Secret(
            f"{self._name}-secret-{worker}",
            metadata=k8s.meta.v1.ObjectMetaArgs(name=secret_name(worker), namespace=KUEUE.namespace),
            string_data={KUBECONFIG_KEY: kubeconfig},
            opts=self._access.options(self, depends_on=self._after),
        )

    def _checked(self, worker: str, stack: str, kubeconfig: str | None, queues: Mapping[str, Any] | None) -> str:
        """The kubeconfig. Raises RunError, in a preview too, if the stack is no worker or its queues do not match."""
        if kubeconfig is None:
            raise pulumi.RunError(
                f"stack {stack} exports no {multikueue.STACK_OUTPUT}: "
                "write multikueue: {role: worker} in its platform and bring it up first"
            )
        found = list(multikueue.mismatches(self._platform, worker, queues or {}))
        if found:
            raise pulumi.RunError("\n".join([f"stack {stack} cannot take this manager's work:", *found]))
        return kubeconfig


def secret_name(worker: str) -> str:
    """Name of the Secret that holds a worker's kubeconfig."""
    return f"multikueue-{worker}"
