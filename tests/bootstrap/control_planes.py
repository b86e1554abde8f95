"""Control-plane VMs, and what kubeadm made on them."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import yaml
from cryptography import x509

from plan.hosts import control_plane_machines, control_plane_metadata
from plan.platform import Platform
from sandbox.kubernetes.joining import ca_cert_hash
from sandbox.tests.emulated_google import PROJECT
from sandbox.toolchain.kubernetes_binaries import KUBERNETES_VERSION
from tests.bootstrap.conftest import MakeMachine
from tests.bootstrap.google import ACCESSOR, CONTROL_PLANE, VERSION_ADDER, VERSION_MANAGER, Secrets
from tests.bootstrap.machine import Boot, Machine
from tests.platforms import SELF_MANAGED, load

API_ADDRESS = "10.0.0.5"
COMMAND = "/usr/local/sbin/tpu-control-plane"


def make_secrets(secrets: Secrets) -> Secrets:
    """The platform's secrets with the grants that a control plane needs, and no others."""
    for kind in ("join", "endpoint", "access"):
        secrets.create(kind, CONTROL_PLANE, VERSION_MANAGER)
    secrets.create("peers", CONTROL_PLANE, VERSION_MANAGER, ACCESSOR)
    secrets.create("keys", CONTROL_PLANE, VERSION_ADDER)
    return secrets


def make_control_plane(
    machine: MakeMachine,
    secrets: Secrets,
    replica: int = 0,
    replicas: int = 1,
    replaces: Machine | None = None,
    account: str = CONTROL_PLANE,
    **metadata: str,
) -> Machine:
    """A machine of the least control plane, or of one with so many replicas."""
    platform = platform_of(secrets, {"replicas": replicas})
    return machine_of(machine, platform, replica, replaces, account, **metadata)


def command(made: Machine, name: str) -> Boot:
    """What a timer starts."""
    return made.run([str(made.root / COMMAND.lstrip("/")), name])


def certificate(made: Machine, name: str) -> x509.Certificate:
    """A certificate of the cluster, by its path below kubeadm's folder for them."""
    return x509.load_pem_x509_certificate(made.read(f"/etc/kubernetes/pki/{name}.crt").encode())


def served_names(made: Machine, name: str) -> set[str]:
    """The names and addresses for which a certificate is valid."""
    names = certificate(made, name).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return {*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))}


def api_name(made: Machine) -> str:
    """What the API server is called inside the cluster."""
    return f"api.{made.vm.record['attributes']['tpu-cluster-name']}.internal"


def ca_hash(made: Machine) -> str:
    """What pins the cluster's authority."""
    return ca_cert_hash(made.read("/etc/kubernetes/pki/ca.crt"))


def documents(made: Machine, config: Path) -> dict[str, Any]:
    text = made.as_on_a_vm(config.read_text())
    return {document["kind"]: document for document in yaml.safe_load_all(text)}


def platform_of(secrets: Secrets, control_plane: dict[str, Any], **platform: Any) -> Platform:
    """A self-managed platform whose secrets are these."""
    cluster = {**SELF_MANAGED, "version": KUBERNETES_VERSION, "control_plane": control_plane}
    return load(name=secrets.platform, cluster=cluster, **platform).model_copy(update={"project": PROJECT})


def machine_of(
    machine: MakeMachine,
    platform: Platform,
    replica: int = 0,
    replaces: Machine | None = None,
    account: str = CONTROL_PLANE,
    /,
    **metadata: str,
) -> Machine:
    """A machine of a platform's control plane, with the metadata that the program gives it, and these. `replaces`: the
    machine whose data disk it takes over."""
    own = control_plane_metadata(platform, replica)
    if replica:
        own["tpu-first-address"] = "10.0.0.6"
    attributes = {**own, "tpu_api_address": API_ADDRESS, **metadata}
    made = machine("control_plane", account, replaces=replaces, **attributes)
    made.vm.record["name"] = control_plane_machines(platform)[replica].name
    return made


def kubelet(made: Machine) -> dict[str, Any]:
    """The kubelet's configuration on a machine."""
    config: dict[str, Any] = yaml.safe_load(made.read("/var/lib/kubelet/config.yaml"))
    return config


def kubelet_flags(made: Machine) -> dict[str, str]:
    """What the kubelet is started with besides its configuration. It goes by the name of its VM, which here is not the
    name of the host."""
    (line,) = made.read("/var/lib/kubelet/kubeadm-flags.env").splitlines()
    (words,) = shlex.split(line.removeprefix("KUBELET_KUBEADM_ARGS="))
    flags = dict(flag.removeprefix("--").split("=", 1) for flag in shlex.split(words))
    assert flags.pop("hostname-override") == made.vm.record["name"]
    return flags
