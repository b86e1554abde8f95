"""Pod Security of the platform's namespaces: the standard `baseline`, plus what pods with TPU claims need.

The TPU runtime under DRA needs the capabilities IPC_LOCK and SYS_RESOURCE, which `baseline` forbids. Kubernetes'
admission controller has no exemption for single capabilities. So where they are allowed, a policy of the platform
enforces the rest of `baseline`. Source: Pod Security Standards, `baseline`, as of Kubernetes 1.36.
"""

from plan.admission_policy import Check, Match, Policy, one_of
from plan.platform import Platform

TPU_CAPABILITIES = ("IPC_LOCK", "SYS_RESOURCE")
BASELINE_CAPABILITIES = (
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
)
SELINUX_TYPES = ("", "container_t", "container_init_t", "container_kvm_t", "container_engine_t")
SYSCTLS = (
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_wmem",
)
PROFILES = ("RuntimeDefault", "Localhost")
APPARMOR = "container.apparmor.security.beta.kubernetes.io/"

VARIABLES = {
    "containers": (
        "object.spec.containers + object.spec.?initContainers.orValue([]) + "
        "object.spec.?ephemeralContainers.orValue([])"
    ),
    # The security contexts of the pod and of its containers.
    "contexts": (
        "[object.spec.?securityContext.orValue({})] + variables.containers.map(c, c.?securityContext.orValue({}))"
    ),
}
_HANDLERS = "[c.?livenessProbe, c.?readinessProbe, c.?startupProbe, c.?lifecycle.?postStart, c.?lifecycle.?preStop]"
CHECKS = (
    Check(
        "!object.spec.?hostNetwork.orValue(false) && !object.spec.?hostPID.orValue(false) && "
        "!object.spec.?hostIPC.orValue(false)",
        "hostNetwork, hostPID and hostIPC must not be true",
    ),
    Check(
        "variables.containers.all(c, !c.?securityContext.?privileged.orValue(false))",
        "securityContext.privileged must not be true",
    ),
    Check(
        "variables.containers.all(c, c.?securityContext.?capabilities.?add.orValue([]).all(name, "
        f"name in {one_of((*BASELINE_CAPABILITIES, *TPU_CAPABILITIES))}))",
        f"capabilities.add may name those of Pod Security's baseline, and {' and '.join(TPU_CAPABILITIES)} for TPUs",
    ),
    Check("object.spec.?volumes.orValue([]).all(v, !has(v.hostPath))", "volumes must not be hostPath"),
    Check(
        "variables.containers.all(c, c.?ports.orValue([]).all(p, p.?hostPort.orValue(0) == 0))",
        "ports must not have a hostPort",
    ),
    Check(
        f"variables.containers.all(c, {_HANDLERS}.all(h, "
        "h.?httpGet.?host.orValue('') == '' && h.?tcpSocket.?host.orValue('') == ''))",
        "probes and lifecycle hooks must not name a host",
    ),
    Check(
        f"variables.contexts.all(s, s.?appArmorProfile.?type.orValue('{PROFILES[0]}') in {one_of(PROFILES)}) && "
        f"object.metadata.?annotations.orValue({{}}).all(key, !key.startsWith('{APPARMOR}') || "
        "object.metadata.annotations[key] in ['', 'runtime/default'] || "
        "object.metadata.annotations[key].startsWith('localhost/'))",
        "AppArmor profiles must not be switched off",
    ),
    Check(
        f"variables.contexts.all(s, s.?seLinuxOptions.?type.orValue('') in {one_of(SELINUX_TYPES)} && "
        "s.?seLinuxOptions.?user.orValue('') == '' && s.?seLinuxOptions.?role.orValue('') == '')",
        "seLinuxOptions must not set a user, a role or a type beyond those of containers",
    ),
    Check(
        "!object.spec.?hostUsers.orValue(true) || "
        "variables.containers.all(c, c.?securityContext.?procMount.orValue('Default') == 'Default')",
        "securityContext.procMount must be Default, unless hostUsers is false",
    ),
    Check(
        f"variables.contexts.all(s, s.?seccompProfile.?type.orValue('{PROFILES[0]}') in {one_of(PROFILES)})",
        "seccompProfile must not be Unconfined",
    ),
    Check(
        f"object.spec.?securityContext.?sysctls.orValue([]).all(s, s.name in {one_of(SYSCTLS)})",
        "sysctls must be among the safe ones",
    ),
    Check(
        "variables.contexts.all(s, !s.?windowsOptions.?hostProcess.orValue(false))",
        "windowsOptions.hostProcess must not be true",
    ),
)


def allows_capabilities(platform: Platform) -> bool:
    """Whether pods may add what the TPU runtime needs under DRA."""
    uses_dra = any(plan.devices == "dra" for plan in platform.slice_plans)
    return uses_dra and platform.software.dra_driver.capabilities


def namespace_labels(platform: Platform) -> dict[str, str]:
    """Pod Security labels of the platform's namespaces: they enforce `baseline`, or only warn where a policy of the
    platform enforces it."""
    modes = ("audit", "warn") if allows_capabilities(platform) else ("enforce",)
    return {f"pod-security.kubernetes.io/{mode}": "baseline" for mode in modes}


def policy(platform: Platform) -> Policy | None:
    """The policy that replaces `baseline` where pods may add capabilities; None where Kubernetes itself enforces it."""
    if not allows_capabilities(platform):
        return None
    return Policy(
        name=f"{platform.name}-pod-security",
        namespaces=platform.workload_namespaces,
        matches=(
            Match("", ("pods",), ("CREATE",)),
            Match("", ("pods/ephemeralcontainers",), ("UPDATE",)),
        ),
        variables=VARIABLES,
        checks=CHECKS,
    )
