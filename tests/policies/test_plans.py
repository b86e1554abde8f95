"""Whole plans: fourteen kinds that were let through although they are unsafe, six that were refused although sound.

The number in a test's name is that of the kind; beside the plan itself stand its neighbours.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from policies import tokens
from policies.registry import Resource, Stack, explicit
from policies.rules import RESOURCE_RULES, STACK_RULES
from policies.values import UNKNOWN
from tests.policies.sound import PROPS, REMOVED, Changes, findings, stack, urn

RULES = {rule.id: rule for rule in (*RESOURCE_RULES, *STACK_RULES)}


@dataclass(frozen=True)
class Plan:
    """The sound stack with changes and further resources; `rule`: what has to find it, in `words`, and nothing else."""

    number: int
    name: str
    resources: Sequence[Resource] = ()
    changes: Changes = field(default_factory=dict)
    rule: str = ""
    words: str = ""

    @property
    def id(self) -> str:
        return f"{self.number:02}-{self.name}"

    @property
    def stack(self) -> Stack:
        return stack(self.changes, extra=tuple(self.resources))


def made(type_: str, props: dict[str, Any], name: str = "added", **more: Any) -> Resource:
    in_cluster = type_.startswith("kubernetes:")
    options = {"protect": True, "delete_before_replace": True, "provider": urn("provider") if in_cluster else None}
    return Resource(type_, name, urn(name), props, **(options | more))


def mandatory(plan: Stack) -> list[tuple[str, str]]:
    return [(rule, f"{path} {words}") for rule, _, path, words in findings(plan) if RULES[rule].level == "mandatory"]


# 1, 2, 3: addresses and ports

QUARTERS = ["0.0.0.0/2", "64.0.0.0/2", "128.0.0.0/2", "192.0.0.0/2"]
SHELL = [{"protocol": "tcp", "ports": ["22", "6443"]}]
ANYWHERE = ["0.0.0.0/0"]


def firewall(ranges: Any, allows: list[dict[str, Any]], **more: Any) -> Resource:
    return made(tokens.FIREWALL, {"direction": "INGRESS", "sourceRanges": ranges, "allows": allows} | more)


def allowed(protocol: str, *ports: str) -> list[dict[str, Any]]:
    return [{"protocol": protocol} | ({"ports": list(ports)} if ports else {})]


def policy_rule(kind: int = 0, action: str = "allow", **match: Any) -> Resource:
    layers = {"layer4Configs": [{"ipProtocol": "tcp", "ports": ["22"]}]}
    rule = {"action": action, "direction": "INGRESS", "priority": 1.0, "match": layers | match}
    return made(tokens.FIREWALL_POLICY_RULES[kind], rule)


def policy_with_rules(kind: int, **match: Any) -> Resource:
    rule = {"action": "allow", "direction": "INGRESS", "match": {"layer4Configs": [{"ipProtocol": "all"}]} | match}
    return made(tokens.FIREWALL_POLICIES[kind], {"rules": [rule | {"action": "deny"}, rule]})


def authorized(*ranges: str) -> Changes:
    return {
        "cluster.controlPlaneEndpointsConfig": {"ipEndpointsConfig": {"enabled": True}},
        "cluster.masterAuthorizedNetworksConfig": {"cidrBlocks": [{"cidrBlock": each} for each in ranges]},
    }


def opened(name: str, ranges: Any, allows: list[dict[str, Any]], words: str = "", number: int = 1) -> Plan:
    return Plan(number, name, [firewall(ranges, allows)], rule="firewall-open", words=words)


ADDRESSES = [
    opened("four-quarters", QUARTERS, SHELL, "4 ranges with together 3,"),
    opened("three-quarters-and-smaller", [*QUARTERS[:3], "192.0.0.0/3", "224.0.0.0/4"], SHELL),
    opened("one-quarter", QUARTERS[:1], SHELL, "0.0.0.0/2"),
    opened("two-eighths", ["32.0.0.0/8", "33.0.0.0/8"], SHELL),
    opened("many-small-ranges", [f"{first}.{second}.0.0/16" for first in (34, 35) for second in range(256)], SHELL),
    opened("half-of-ipv6", ["::/1"], SHELL, "::/1"),
    opened("global-ipv6", ["2000::/3"], SHELL, "2000::/3"),
    opened("quarters-of-global-ipv6", ["2000::/5", "2800::/5", "3000::/5", "3800::/5"], SHELL, "more public addresses"),
    Plan(1, "authorized-quarters", changes=authorized(*QUARTERS), rule="control-plane-access", words="4 ranges"),
    Plan(1, "authorized-ipv6", changes=authorized("2000::/3"), rule="control-plane-access"),
    *(
        opened(f"tcp-{ports}", ANYWHERE, allowed("tcp", ports), ports, number=2)
        for ports in ("30000-32767", "31234", "2380", "10255", "8470-8479", "8476", "10250-10260", "1-65535", "80-3000")
    ),
    opened("protocol-6", ANYWHERE, allowed("6", "22"), "6 22", number=2),
    opened("all-protocols", ANYWHERE, allowed("all"), "all on all ports", number=2),
    opened("udp-everything", ANYWHERE, allowed("udp"), number=2),
    opened("udp-overlay", ANYWHERE, allowed("udp", "8472"), number=2),
    opened("ip-in-ip", ANYWHERE, allowed("ipip"), number=2),
    *(
        Plan(3, f"policy-rule-{kind}", [policy_rule(kind, srcIpRanges=ANYWHERE)], rule="firewall-open", words="tcp 22")
        for kind in range(3)
    ),
    *(
        Plan(3, f"policy-with-rules-{kind}", [policy_with_rules(kind, srcIpRanges=QUARTERS)], rule="firewall-open")
        for kind in range(3)
    ),
    Plan(
        3,
        "policy-rule-inspected",
        [policy_rule(0, "apply_security_profile_group", srcIpRanges=ANYWHERE)],
        rule="firewall-open",
    ),
    Plan(3, "policy-rule-of-the-internet", [policy_rule(srcNetworkScope="INTERNET")], rule="firewall-open"),
    Plan(3, "policy-rule-of-a-country", [policy_rule(srcRegionCodes=["US"])], rule="firewall-open", words="US"),
    Plan(3, "policy-rule-without-source", [policy_rule()], rule="firewall-open", words="no source"),
]

# 4, 5: roles

PUBLIC_POLICY = {"bindings": [{"role": "roles/owner", "members": ["user:a@example.com", "allUsers"]}]}
PUBLIC_READERS = {"bindings": [{"role": "roles/secretmanager.viewer", "members": ["allUsers"]}]}
CUSTOM = "projects/p/roles/deployer"


def policy(type_: str, data: Any) -> Resource:
    return made(type_, {"policyData": json.dumps(data)})


def granted(
    type_: str, role: Any, member: str = "serviceAccount:ci@p.iam.gserviceaccount.com", **more: Any
) -> Resource:
    key = {"members": [member]} if type_.endswith("Binding") else {"member": member}
    return made(type_, {"role": role} | key, **more)


def custom_role(*permissions: str) -> Resource:
    return made(tokens.CUSTOM_ROLES[0], {"roleId": "deployer", "permissions": list(permissions)}, "deployer")


PROJECT_MEMBER, PROJECT_BINDING, PROJECT_POLICY = tokens.PROJECT_IAM
STRONG = ("compute.instances.get", "iam.serviceAccounts.actAs")

ROLES = [
    *(
        Plan(4, f"public-{type_.rpartition(':')[2]}", [policy(type_, PUBLIC_READERS)], rule="public-grant")
        for type_ in (
            "gcp:secretmanager/secretIamPolicy:SecretIamPolicy",
            "gcp:storage/bucketIAMPolicy:BucketIAMPolicy",
            "gcp:kms/cryptoKeyIAMPolicy:CryptoKeyIAMPolicy",
            "gcp:serviceaccount/iAMPolicy:IAMPolicy",
            PROJECT_POLICY,
        )
    ),
    *(
        Plan(4, f"public-{type_.rpartition(':')[2]}", [granted(type_, "roles/viewer", "allUsers")], rule="public-grant")
        for type_ in (
            "gcp:secretmanager/secretIamMember:SecretIamMember",
            "gcp:secretmanager/secretIamBinding:SecretIamBinding",
            "gcp:storage/bucketIAMBinding:BucketIAMBinding",
            "gcp:kms/keyRingIAMMember:KeyRingIAMMember",
            "gcp:serviceaccount/iAMBinding:IAMBinding",
        )
    ),
    Plan(4, "public-list", [made(tokens.ACCESS_LISTS[0], {"roleEntities": ["READER:allUsers"]})], rule="public-grant"),
    Plan(4, "public-entity", [made(tokens.ACCESS_LISTS[3], {"entity": "allUsers"})], rule="public-grant"),
    Plan(4, "public-predefined", [made(tokens.ACCESS_LISTS[0], {"predefinedAcl": "publicRead"})], rule="public-grant"),
    *(
        Plan(5, f"owner-by-{type_.split(':')[1]}", [granted(type_, "roles/owner")], rule="broad-roles")
        for type_ in (*tokens.PROJECT_IAM, *tokens.PARENT_IAM)
        if not type_.endswith("Policy")
    ),
    *(
        Plan(
            5,
            f"owner-by-{type_.split(':')[1]}",
            [policy(type_, {"bindings": [{"role": "roles/owner", "members": ["user:a@example.com"]}]})],
            rule="broad-roles",
            words="policyData grants roles/owner",
        )
        for type_ in (PROJECT_POLICY, tokens.PARENT_IAM[2], tokens.PARENT_IAM[5])
    ),
    *(
        Plan(5, role, [granted(PROJECT_MEMBER, f"roles/{role}")], rule="broad-roles")
        for role in (
            "admin",
            "compute.instanceAdmin.v1",
            "iam.roleAdmin",
            "cloudbuild.builds.editor",
            "iam.workloadIdentityPoolAdmin",
            "container.serviceAgent",
        )
    ),
    Plan(
        5,
        "token-creator-on-folder",
        [granted(tokens.PARENT_IAM[0], "roles/iam.serviceAccountTokenCreator")],
        rule="broad-roles",
    ),
    Plan(5, "custom-role", [granted(PROJECT_MEMBER, CUSTOM)], rule="custom-roles", words="not in the stack"),
    Plan(5, "custom-role-binding", [granted(PROJECT_BINDING, "organizations/1/roles/x")], rule="custom-roles"),
    Plan(5, "custom-role-by-name", [custom_role(*STRONG), granted(PROJECT_MEMBER, CUSTOM)], rule="custom-roles"),
    Plan(
        5,
        "custom-role-by-reference",
        [
            custom_role(*STRONG),
            granted(PROJECT_MEMBER, UNKNOWN, name="grant", property_dependencies={"role": (urn("deployer"),)}),
        ],
        rule="custom-roles",
        words="iam.serviceAccounts.actAs",
    ),
    Plan(
        4,
        "owner-for-everybody-by-policy",
        [policy(PROJECT_POLICY, PUBLIC_POLICY)],
        rule="broad-roles public-grant",
        words="allUsers",
    ),
]

# 6, 7, 12, 13: inside the cluster

KINDS = {
    "Deployment": ("apps/v1", "template"),
    "StatefulSet": ("apps/v1", "template"),
    "DaemonSet": ("apps/v1", "template"),
    "Job": ("batch/v1", "template"),
    "CronJob": ("batch/v1", "jobTemplate.spec.template"),
    "Pod": ("core/v1", ""),
    "JobSet": ("jobset.x-k8s.io/v1alpha2", "replicatedJobs"),
    "LeaderWorkerSet": ("leaderworkerset.x-k8s.io/v1", "leaderWorkerTemplate.workerTemplate"),
}
IMAGE = "us-docker.pkg.dev/p/r/server:v1.2.3"


def workload(kind: str = "Deployment", container: Any = None, namespace: str = "team", **pod: Any) -> Resource:
    api, place = KINDS[kind]
    spec: Any = {"containers": [{"name": "server", "image": IMAGE} | (container or {})]} | pod
    if place == "replicatedJobs":
        spec = {place: [{"template": {"spec": {"template": {"spec": spec}}}}]}
    elif place:
        for key in reversed(place.split(".")):
            spec = {key: {"spec": spec}} if key != "spec" else spec
    return made(f"kubernetes:{api}:{kind}", {"metadata": {"namespace": namespace}, "spec": spec})


def privileged(name: str, resource: Resource, words: str = "") -> Plan:
    return Plan(6, name, [resource], rule="pod-privileges", words=words)


def variable(name: str, value: str) -> dict[str, Any]:
    return {"env": [{"name": name, "value": value}]}


def contexts(**context: Any) -> dict[str, Any]:
    return {"securityContext": context}


DISK = [{"name": "disk", "hostPath": {"path": "/"}}]
NAMESPACE_LABELS = {"pod-security.kubernetes.io/enforce": "privileged"}


def binding(role: str, subject: dict[str, Any], type_: str = tokens.CLUSTER_ROLE_BINDING) -> Resource:
    kind = "Role" if role.startswith("role/") else "ClusterRole"
    return made(type_, {"roleRef": {"kind": kind, "name": role.removeprefix("role/")}, "subjects": [subject]})


def group(name: str) -> dict[str, Any]:
    return {"kind": "Group", "name": name}


ANYTHING = made(
    tokens.CLUSTER_ROLE,
    {"metadata": {"name": "everything"}, "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]},
    "everything",
)


def kubeconfig(**user: Any) -> Changes:
    return {"provider.kubeconfig": json.dumps({"apiVersion": "v1", "users": [{"name": "a", "user": user}]})}


def command(**exec_: Any) -> Changes:
    return kubeconfig(exec={"command": "sh"} | exec_)


IN_CLUSTER = [
    *(privileged(f"privileged-{kind}", workload(kind, contexts(privileged=True))) for kind in KINDS),
    *(privileged(f"host-network-{kind}", workload(kind, hostNetwork=True), "hostNetwork") for kind in KINDS),
    privileged("host-disk", workload(volumes=DISK), "whole disk"),
    privileged("host-disk-of-an-agent", workload("DaemonSet", namespace="kube-system", volumes=DISK), "whole disk"),
    privileged("host-folder", workload(volumes=[{"hostPath": {"path": "/run/containerd"}}]), "/run/containerd"),
    privileged("host-processes", workload(hostPID=True), "hostPID"),
    privileged("privileged-in-kube-system", workload("Deployment", contexts(privileged=True), "kube-system")),
    privileged("init-container", workload(initContainers=[contexts(privileged=True)]), "initContainers.0"),
    privileged("capability", workload("Job", contexts(capabilities={"add": ["CAP_SYS_ADMIN"]})), "SYS_ADMIN"),
    privileged("host-port", workload(container={"ports": [{"hostPort": 8471.0}]}), "8471"),
    *(
        Plan(
            6, f"image-{tag or 'untagged'}", [workload(container={"image": f"r.io/p/server{tag}"})], rule="image-pinned"
        )
        for tag in ("", ":latest", ":main", ":nightly", ":main-py3", ":stable", ":release-tpu")
    ),
    Plan(6, "token-in-env", [workload(container=variable("HF_TOKEN", "hf_" + "a1" * 17))], rule="secret-in-pod"),
    Plan(6, "password-in-env", [workload("Job", variable("DB_PASSWORD", "hunter22"))], rule="secret-in-pod"),
    Plan(6, "key-in-env", [workload("JobSet", variable("WANDB_API_KEY", "0a1b2c3d4e"))], rule="secret-in-pod"),
    Plan(
        6,
        "token-in-env-of-no-name",
        [workload(container=variable("X", "abcdef.0123456789abcdef"))],
        rule="secret-in-pod",
    ),
    Plan(6, "token-in-arguments", [workload(container={"args": ["--api-key=s3cr3tvalue"]})], rule="secret-in-pod"),
    Plan(6, "token-in-next-argument", [workload(container={"args": ["--token", "s3cr3tvalue"]})], rule="secret-in-pod"),
    Plan(
        7,
        "namespace",
        [made(tokens.NAMESPACE, {"metadata": {"name": "team-b", "labels": NAMESPACE_LABELS}})],
        rule="privileged-namespace",
    ),
    Plan(
        7,
        "patch",
        [made(tokens.NAMESPACE_PATCH, {"metadata": {"name": "default", "labels": NAMESPACE_LABELS}})],
        rule="privileged-namespace",
    ),
    Plan(
        12,
        "all-accounts",
        [binding("cluster-admin", group("system:serviceaccounts"))],
        rule="unnamed-subjects pods-administer",
    ),
    Plan(
        12,
        "accounts-of-a-namespace",
        [binding("cluster-admin", group("system:serviceaccounts:team"))],
        rule="pods-administer",
    ),
    Plan(12, "nodes", [binding("cluster-admin", group("system:nodes"))], rule="pods-administer"),
    Plan(
        12, "default-account", [binding("admin", {"kind": "ServiceAccount", "name": "default"})], rule="pods-administer"
    ),
    Plan(
        12,
        "in-a-namespace",
        [binding("edit", group("system:serviceaccounts:a"), tokens.ROLE_BINDING)],
        rule="pods-administer",
    ),
    Plan(
        12,
        "by-reference",
        [ANYTHING, binding("everything", group("system:serviceaccounts:team"))],
        rule="pods-administer",
        words="everything",
    ),
    Plan(
        13,
        "auth-provider",
        changes=kubeconfig(**{"auth-provider": {"name": "gcp", "config": {"access-token": "ya29.a"}}}),
        rule="provider-credential",
        words="auth-provider",
    ),
    Plan(13, "exec-env", changes=command(env=[{"name": "TOKEN", "value": "abc123xyz"}]), rule="provider-credential"),
    Plan(
        13,
        "exec-env-of-no-name",
        changes=command(env=[{"name": "X", "value": f"eyJ{'a' * 12}.eyJ{'b' * 12}.{'c' * 12}"}]),
        rule="provider-credential secret-in-plain-text",
    ),
    Plan(13, "exec-argument", changes=command(args=["--token=abc123xyz"]), rule="provider-credential", words="args.0"),
    Plan(13, "key", changes=kubeconfig(**{"client-key-data": "a2V5"}), rule="provider-credential"),
]

# 8, 9, 10, 11, 14: machines and clusters

HOST: dict[str, Any] = {key: value for key, value in PROPS["machine"][1].items() if key != "labels"}


def hosts(count: int, type_: str = tokens.INSTANCE, **props: Any) -> list[Resource]:
    return [made(type_, HOST | props, f"host-{number}") for number in range(count)]


def tpu_vm(**props: Any) -> Resource:
    account = {"email": "nodes@my-project.iam.gserviceaccount.com"}
    all_ = {"zone": "us-east5-b", "acceleratorType": "v6e-8", "serviceAccount": account} | props
    return made(tokens.TPU_VM, {key: value for key, value in all_.items() if value is not REMOVED})


def queued(**node: Any) -> Resource:
    return made(tokens.QUEUED_RESOURCE, {"tpu": {"nodeSpecs": [{"node": {"acceleratorType": "v6e-8"} | node}]}})


def exclusion(start: timedelta, end: timedelta | None) -> Changes:
    now = datetime.now(UTC)
    written: dict[str, Any] = {"startTime": (now + start).isoformat()}
    written |= {"endTime": (now + end).strftime("%Y-%m-%dT%H:%M:%SZ")} if end else {}
    options = {"scope": "NO_MINOR_OR_NODE_UPGRADES"} | ({} if end else {"endTimeBehavior": "UNTIL_END_OF_SUPPORT"})
    path = "cluster.maintenancePolicy.maintenanceExclusions"
    return {path: [written | {"exclusionOptions": options}]}


def over(name: str, changes: Changes, words: str = "not now") -> Plan:
    return Plan(10, name, changes=changes, rule="maintenance-exclusion", words=words)


DAY = timedelta(days=1)
ENDED = {"startTime": "2019-01-01T00:00:00Z", "endTime": "2020-01-01T00:00:00Z"}
DNS = "cluster.controlPlaneEndpointsConfig.dnsEndpointConfig"
BY_DNS = {"allowExternalTraffic": True, "enableK8sTokensViaDns": True, "enableK8sCertsViaDns": True}
OLD_POOL: dict[str, Any] = {
    "machineType": "ct6e-standard-4t",
    "serviceAccount": "default",
    "metadata": {},
    "oauthScopes": ["https://www.googleapis.com/auth/compute"],
    "workloadMetadataConfig": {"mode": "GCE_METADATA"},
    "kubeletConfig": {"insecureKubeletReadonlyPortEnabled": "TRUE"},
}
OLD_POOL_RULES = (
    "default-pool kubelet-readonly-port legacy-metadata node-image node-metadata node-scopes node-service-account"
    " secure-boot"
)
PUBLIC = [{"subnetwork": "s", "accessConfigs": [{}]}]

MACHINES = [
    Plan(
        8,
        "plain-machines",
        hosts(300, machineType="ct6e-standard-8t"),
        rule="chips-limit cost-limit",
        words="2,464 chips",
    ),
    Plan(
        8,
        "machines-by-url",
        hosts(300, machineType="zones/us-east5-b/machineTypes/ct6e-standard-8t"),
        rule="chips-limit cost-limit",
    ),
    Plan(
        8,
        "machines-from-a-template",
        [
            replace(
                each,
                props={"sourceInstanceTemplate": UNKNOWN, "zone": "us-east5-b"},
                property_dependencies={"sourceInstanceTemplate": (urn("template"),)},
            )
            for each in hosts(300, tokens.INSTANCE_FROM_TEMPLATE)
        ],
        rule="chips-limit",
        words="1,264 chips",
    ),
    Plan(
        8, "accelerators", hosts(300, guestAccelerators=[{"type": "tpu-v6e-slice", "count": 4.0}]), rule="chips-limit"
    ),
    Plan(8, "ironwood-machines", hosts(300, machineType="tpu7x-standard-4t"), rule="chips-limit", words="1,264"),
    Plan(8, "tpu-vms", [tpu_vm(acceleratorType="v5p-4096")], rule="chips-limit cost-limit", words="2,112"),
    Plan(
        8,
        "tpu-vm-by-topology",
        [tpu_vm(acceleratorType=REMOVED, acceleratorConfig={"type": "V5P", "topology": "8x16x16"})],
        rule="chips-limit cost-limit",
        words="2,112",
    ),
    Plan(8, "queued-tpu-vms", [queued(acceleratorType="v6e-256") for _ in range(5)], rule="chips-limit", words="1,344"),
    Plan(
        8,
        "autoscaled-group",
        [
            made(
                tokens.AUTOSCALER,
                {"autoscalingPolicy": {"maxReplicas": 400.0}},
                "scaler",
                property_dependencies={"target": (urn("mig"),)},
            )
        ],
        {
            "mig.targetSizePolicies": [],
            "policy.workloadPolicy": {"type": "HIGH_AVAILABILITY"},
            "template.metadata.kube-labels": UNKNOWN,
        },
        rule="chips-limit",
        words="1,648",
    ),
    Plan(8, "public-tpu-vm", [tpu_vm(networkConfig={"enableExternalIps": True})], rule="vm-external-address"),
    Plan(
        8, "public-tpu-vm-interface", [tpu_vm(networkConfigs=[{"enableExternalIps": True}])], rule="vm-external-address"
    ),
    Plan(8, "public-queued-tpu-vm", [queued(networkConfig={"enableExternalIps": True})], rule="vm-external-address"),
    Plan(8, "tpu-vm-of-the-default-account", [tpu_vm(serviceAccount={})], rule="node-service-account"),
    Plan(
        9,
        "default-pool-of-tpus",
        changes={"cluster.removeDefaultNodePool": False, "cluster.nodeConfig": OLD_POOL},
        rule=OLD_POOL_RULES,
        words="keeps its pool of ct6e-standard-4t",
    ),
    Plan(
        9,
        "unremoved-default-pool-of-many",
        changes={
            "cluster.removeDefaultNodePool": REMOVED,
            "cluster.nodeConfig": OLD_POOL | {"machineType": "tpu7x-standard-4t"},
            "cluster.initialNodeCount": 100.0,
        },
        rule=f"{OLD_POOL_RULES} chips-limit",
        words="1,264",
    ),
    over(
        "ended-in-2020",
        {"cluster.maintenancePolicy.maintenanceExclusions.0": ENDED | {"exclusionOptions": {"scope": "NO_UPGRADES"}}},
        "2020-01-01",
    ),
    over("ended-yesterday", exclusion(-9 * DAY, -DAY)),
    over("begins-next-year", exclusion(300 * DAY, 400 * DAY)),
    Plan(11, "tokens-and-certificates", changes={DNS: BY_DNS}, rule="legacy-authentication dns-endpoint-tokens"),
    Plan(11, "certificates", changes={DNS: {"enableK8sCertsViaDns": True}}, rule="legacy-authentication"),
    Plan(
        11,
        "tokens",
        changes={DNS: {"allowExternalTraffic": True, "enableK8sTokensViaDns": True}},
        rule="dns-endpoint-tokens",
    ),
    *(
        Plan(14, type_.rpartition(":")[2], [made(type_, {"networkInterfaces": PUBLIC})], rule="vm-external-address")
        for type_ in tokens.DERIVED_INSTANCES
    ),
    Plan(
        14,
        "of-the-default-account",
        [made(tokens.INSTANCE_FROM_TEMPLATE, {"serviceAccount": {"email": "default"}})],
        rule="node-service-account",
    ),
    Plan(
        14,
        "serial-port",
        [made(tokens.INSTANCE_FROM_TEMPLATE, {"metadata": {"serial-port-enable": "TRUE"}})],
        rule="vm-logins",
    ),
]

BAD = [*ADDRESSES, *ROLES, *IN_CLUSTER, *MACHINES]

# What was refused although it is sound, and neighbours of the plans above.

TOKENS_BY_DNS = {"allowExternalTraffic": True, "enableK8sTokensViaDns": True}
MANAGER = made(tokens.SERVICE_ACCOUNT, {"metadata": {"name": "multikueue-manager", "namespace": "kueue-system"}})


def chart(name: str, version: Any = REMOVED) -> Changes:
    return {"driver.chart": name, "driver.version": version}


GOOD = [
    Plan(2, "esp-for-a-vpn", [firewall(ANYWHERE, [*allowed("esp"), *allowed("udp", "500", "4500")])]),
    Plan(2, "esp-by-number", [firewall(ANYWHERE, allowed("50"))]),
    Plan(2, "udp-over-22", [firewall(ANYWHERE, allowed("udp", "1-1024"))]),
    Plan(2, "web", [firewall(ANYWHERE, allowed("tcp", "80", "443"))]),
    Plan(2, "icmp", [firewall(ANYWHERE, allowed("icmp"))]),
    Plan(2, "private-ranges", [firewall(["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10"], SHELL)]),
    Plan(2, "a-company", [firewall(["17.0.0.0/8"], SHELL)]),
    Plan(2, "identity-aware-proxy", [firewall(["35.235.240.0/20"], SHELL)]),
    Plan(2, "private-ipv6", [firewall(["fc00::/7", "2001:db8::/32"], SHELL)]),
    Plan(2, "overlapping-offices", [firewall(["192.0.2.0/24", "192.0.2.0/25"] * 9, SHELL)]),
    Plan(2, "policy-denies", [policy_rule(action="deny", srcIpRanges=ANYWHERE)]),
    Plan(2, "policy-of-the-same-network", [policy_rule(srcIpRanges=ANYWHERE, srcNetworkScope="INTRA_VPC")]),
    Plan(2, "policy-of-tags", [policy_rule(srcSecureTags=[{"name": "tagValues/1"}])]),
    Plan(2, "authorized-offices", changes=authorized("192.0.2.0/24", "198.51.100.0/24")),
    Plan(3, "os-login", changes={"machine.metadata": {"enable-oslogin": "TRUE"}}),
    Plan(
        3,
        "os-login-of-a-template",
        changes={"template.metadata.block-project-ssh-keys": REMOVED, "template.metadata.enable-oslogin": "true"},
    ),
    Plan(4, "archive", changes=chart("https://example.com/charts/driver-1.2.3.tgz")),
    Plan(4, "archive-of-a-folder", changes=chart("charts/driver-v1.2.3-rc.1.tgz")),
    Plan(4, "folder", changes=chart("charts/driver")),
    Plan(4, "folder-from-here", changes=chart("./driver")),
    Plan(4, "tag-of-a-registry", changes=chart("oci://registry.example.com/charts/driver:1.2.3")),
    Plan(5, "flavors-of-another-stack", changes={"flavor.@type": tokens.CONFIG_MAP}),
    Plan(6, "text-with-a-dot", changes={"template.metadata.note": "server.interconnections"}),
    Plan(
        6, "text-with-dots", changes={"settings.data.note": "see server.interconnections and worker.synchronisations"}
    ),
    Plan(
        0,
        "roles-of-google's-agents",
        [
            granted(
                PROJECT_MEMBER,
                "roles/container.serviceAgent",
                "serviceAccount:service-1@container-engine-robot.iam.gserviceaccount.com",
            )
        ],
    ),
    Plan(0, "narrow-custom-role", [custom_role("compute.instances.get"), granted(PROJECT_MEMBER, CUSTOM)]),
    Plan(
        0,
        "sound-policy",
        [policy(PROJECT_POLICY, {"bindings": [{"role": "roles/viewer", "members": ["group:a@example.com"]}]})],
    ),
    Plan(0, "no-policy-yet", [made(PROJECT_POLICY, {"policyData": UNKNOWN})]),
    Plan(0, "agent", [workload("DaemonSet", contexts(privileged=True), "kube-system", hostNetwork=True)]),
    Plan(0, "capabilities-of-tpus", [workload(container=contexts(capabilities={"add": ["IPC_LOCK", "SYS_RESOURCE"]}))]),
    Plan(0, "commit-of-main", [workload(container={"image": "r.io/p/server:main-0a1b2c3"})]),
    Plan(0, "dated-nightly", [workload(container={"image": "r.io/p/server:nightly-20260101"})]),
    *(
        Plan(0, f"{name}-is-no-secret", [workload(container=variable(name, value))])
        for name, value in {
            "TOKENIZER": "meta-llama/Llama-3",
            "MAX_TOKENS": "4096",
            "EOS_TOKEN": "</s>",
            "GOOGLE_APPLICATION_CREDENTIALS": "/var/run/key.json",
            "PULL_SECRET": "my-registry",
            "HF_TOKEN": "$(FROM_SECRET)",
            "USE_AUTH_TOKEN": "false",
        }.items()
    ),
    Plan(
        0,
        "token-by-reference",
        [workload(container={"env": [{"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf"}}}]})],
    ),
    Plan(0, "secret-by-name", changes=command(args=["secrets", "versions", "access", "latest", "--secret=tpu-access"])),
    Plan(
        0,
        "driver-namespace",
        [made(tokens.NAMESPACE, {"metadata": {"name": "dra-driver-google-tpu", "labels": NAMESPACE_LABELS}})],
    ),
    Plan(0, "machines-without-tpus", hosts(300, machineType="e2-standard-4")),
    Plan(0, "single-tpu-vm", [tpu_vm()]),
    Plan(
        0,
        "default-pool-of-autopilot",
        changes={"cluster.enableAutopilot": True, "cluster.removeDefaultNodePool": REMOVED},
    ),
    Plan(0, "exclusion-in-force", changes=exclusion(-DAY, 90 * DAY)),
    Plan(0, "exclusion-without-end", changes=exclusion(-DAY, None)),
    Plan(0, "exclusion-from-tomorrow", changes=exclusion(DAY / 2, 90 * DAY)),
    Plan(0, "tokens-of-a-multikueue-manager", [MANAGER], {DNS: TOKENS_BY_DNS}),
    Plan(0, "machine-of-a-template", [made(tokens.INSTANCE_FROM_TEMPLATE, {"sourceInstanceTemplate": "template"})]),
    Plan(
        0, "readers-of-a-namespace", [binding("view", group("system:serviceaccounts:monitoring"), tokens.ROLE_BINDING)]
    ),
    Plan(0, "named-administrators", [binding("cluster-admin", group("admins@example.com"))]),
    Plan(
        0, "verifiers-of-tokens", [binding("system:service-account-issuer-discovery", group("system:serviceaccounts"))]
    ),
]


@pytest.mark.parametrize("plan", BAD, ids=lambda plan: plan.id)
def test_bad_plan(plan: Plan) -> None:
    found = mandatory(plan.stack)
    assert {rule for rule, _ in found} == set(plan.rule.split()), found
    assert any(plan.words in text for _, text in found), found


@pytest.mark.parametrize("plan", GOOD, ids=lambda plan: plan.id)
def test_good_plan(plan: Plan) -> None:
    assert mandatory(plan.stack) == []


@pytest.mark.parametrize(
    "name", ["default-cluster", "default_cluster", "default-4.34.2", "defaults", "access-provider"]
)
def test_good_plan_01_a_provider_of_the_programs_own(name: str) -> None:
    assert explicit(name)


@pytest.mark.parametrize(
    "name", ["default", "default_4_34_2", "default_10_2_0_alpha_1", "default_1_0_0_https___example_com"]
)
def test_providers_that_the_engine_makes_are_not_the_programs(name: str) -> None:
    assert not explicit(name)


def test_good_plan_04_a_chart_in_a_folder_beside_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "driver").mkdir()
    (tmp_path / "driver" / "Chart.yaml").write_text("name: driver\n")
    plan = stack(chart("driver"))
    assert [rule for rule, _ in mandatory(plan)] == ["chart-pinned"]
    monkeypatch.chdir(tmp_path)
    assert mandatory(plan) == []


def test_good_plan_05_flavors_of_another_stack_beside_own_ones_are_named_in_the_settings() -> None:
    plan = stack({"queue.spec.resourceGroups.0.flavors.0.name": "v5p-2x2x2"})
    assert [found[0] for found in findings(plan, "queue-flavors")] == ["queue-flavors"]
    assert list(findings(plan, "queue-flavors", {"queue-flavors": {"flavors": ["v5p-*"]}})) == []


def test_every_kind_of_plan_is_tried() -> None:
    assert {plan.number for plan in BAD} == set(range(1, 15))
    assert {plan.number for plan in GOOD} | {1} == {0, *range(1, 7)}


def unknown_below(value: Any) -> Iterator[Any]:
    """Copies of a value in which one part each is not known yet."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(pairs):
        for other in (UNKNOWN, *unknown_below(inner)):
            copied = copy(value)
            copied[key] = other
            yield copied


@pytest.mark.parametrize(
    "plan", [plan for plan in BAD if plan.resources and len(plan.resources) < 10], ids=lambda plan: plan.id
)
def test_what_is_not_known_yet_ends_no_rule_and_is_not_found(plan: Plan) -> None:
    """Each part of a bad plan in turn, and then all of it: a preview says nothing, and the update judges."""
    for index, resource in enumerate(plan.resources):
        others = [each for place, each in enumerate(plan.resources) if place != index]
        for props in unknown_below(dict(resource.props)):
            found = mandatory(replace(plan, resources=[*others, replace(resource, props=props)]).stack)
            assert {rule for rule, _ in found} <= {*plan.rule.split()}, (props, found)
    blank = [replace(each, props=dict.fromkeys(each.props, UNKNOWN)) for each in plan.resources]
    assert {rule for rule, _ in mandatory(replace(plan, resources=blank).stack)} == set()
