"""What the real kubeadm makes of what the boot scripts write: certificates, static pods, the kubelet's files.

Every boot in this folder's tests goes through the real kubeadm (shims/stand-ins/kubeadm); this looks at what comes out.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_network
from typing import Any

import pytest
import yaml

from plan.platform import Platform
from rules.clusters import NARROWEST_SERVICES, WIDEST_SERVICES
from tests.bootstrap.conftest import MakeMachine, NewSecrets
from tests.bootstrap.control_planes import (
    API_ADDRESS,
    api_name,
    kubelet,
    kubelet_flags,
    machine_of,
    platform_of,
    served_names,
)
from tests.bootstrap.google import Secrets
from tests.bootstrap.machine import Machine
from tests.bootstrap.running import arguments, manifest

pytestmark = pytest.mark.sandbox

CALLERS = {"cidr": "192.0.2.0/24", "name": "office"}
# By name: how a platform differs from the least one; its control plane, its network, the addresses the program adds.
VARIANTS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, str]]] = {
    "one": ({}, {}, {}),
    "three": ({"replicas": 3}, {}, {}),
    "external": ({"access": "external", "authorized_networks": [CALLERS]}, {}, {"tpu_public_address": "203.0.113.9"}),
    "wide": ({}, {"pods_cidr": "10.64.0.0/10", "services_cidr": f"172.16.0.0/{WIDEST_SERVICES}"}, {}),
    "narrow": ({}, {"pods_cidr": "10.64.0.0/22", "services_cidr": f"10.0.32.0/{NARROWEST_SERVICES}"}, {}),
}


@dataclass(frozen=True)
class Booted:
    """The first machine of a platform's control plane after its boot."""

    platform: Platform
    made: Machine
    addresses: dict[str, str]


@pytest.fixture(scope="module", params=VARIANTS)
def booted(request: pytest.FixtureRequest, machine: MakeMachine, new_secrets: NewSecrets) -> Booted:
    control_plane, network, addresses = VARIANTS[request.param]
    platform = platform_of(new_secrets(), control_plane, network=network)
    made = machine_of(machine, platform, **addresses)
    boot = made.boot()
    assert boot.code == 0, boot.output
    return Booted(platform, made, addresses)


def test_the_certificate_names_everything_that_clients_call(booted: Booted) -> None:
    services = ip_network(booted.platform.network.services_cidr)
    assert served_names(booted.made, "apiserver") == {
        *("kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"),
        *(api_name(booted.made), booted.made.vm.record["name"]),
        *(API_ADDRESS, "10.0.0.7", str(services[1])),
        *booted.addresses.values(),
    }


def test_the_cluster_has_the_ranges_of_the_network(booted: Booted) -> None:
    network = booted.platform.network
    assert arguments(booted.made, "kube-apiserver")["service-cluster-ip-range"] == network.services_cidr
    controllers = arguments(booted.made, "kube-controller-manager")
    assert controllers["cluster-cidr"] == network.pods_cidr
    assert controllers["allocate-node-cidrs"] == "false"  # the VPC does
    assert kubelet(booted.made)["clusterDNS"] == [str(ip_network(network.services_cidr)[10])]


def test_programs_listen_and_look_where_the_platform_expects_them(booted: Booted) -> None:
    made = booted.made
    api, controllers = arguments(made, "kube-apiserver"), arguments(made, "kube-controller-manager")
    assert (api["advertise-address"], api["secure-port"]) == ("10.0.0.7", "6443")
    assert api["etcd-servers"] == "https://127.0.0.1:2379"
    assert api["authorization-mode"] == "Node,RBAC"
    assert api["enable-bootstrap-token-auth"] == "true"
    assert "anonymous-auth" not in api  # the API server refuses it beside the file that limits it
    assert controllers["cloud-provider"] == "external"
    assert controllers["cluster-name"] == booted.platform.cluster_name
    profiled = {program: arguments(made, program)["profiling"] for program in ("kube-apiserver", "kube-scheduler")}
    assert {*profiled.values(), controllers["profiling"]} == {"false"}
    server = yaml.safe_load(made.read("/etc/kubernetes/admin.conf"))["clusters"][0]["cluster"]["server"]
    assert server == f"https://{api_name(made)}:6443"


def test_etcd_lies_on_the_data_disk_and_talks_to_its_peers_by_the_machines_address(booted: Booted) -> None:
    etcd, name = arguments(booted.made, "etcd"), booted.made.vm.record["name"]
    assert etcd["data-dir"] == "/var/lib/etcd"
    assert etcd["initial-cluster"] == f"{name}=https://10.0.0.7:2380"
    assert etcd["listen-client-urls"] == "https://127.0.0.1:2379,https://10.0.0.7:2379"
    assert hosts_folders(booted.made, "etcd") == {"/var/lib/etcd", "/etc/kubernetes/pki/etcd"}


def test_the_api_server_sees_every_file_it_is_told_of(booted: Booted) -> None:
    folders = hosts_folders(booted.made, "kube-apiserver")
    files = {value for value in arguments(booted.made, "kube-apiserver").values() if value.startswith("/")}
    assert len(files) > len(folders)
    assert [file for file in files if not any(file.startswith(f"{folder}/") for folder in folders)] == []


def test_the_kubelet_of_a_control_plane_ends_pods_in_time(booted: Booted) -> None:
    config = kubelet(booted.made)
    assert config["maxPods"] == 110
    assert (config["shutdownGracePeriod"], config["shutdownGracePeriodCriticalPods"]) == ("30s", "10s")
    assert config["cgroupDriver"] == "systemd"  # as configured for containerd
    assert kubelet_flags(booted.made) == {"cloud-provider": "external"}


def hosts_folders(made: Machine, name: str) -> set[str]:
    """The folders of the host that a static pod sees under the same path."""
    spec = manifest(made, name)["spec"]
    mounted = {mount["name"]: mount["mountPath"] for mount in spec["containers"][0]["volumeMounts"]}
    return {
        mounted[volume["name"]] for volume in spec["volumes"] if volume["hostPath"]["path"] == mounted[volume["name"]]
    }


@pytest.mark.parametrize(
    ("services", "why"),
    [
        (f"12.0.0.0/{WIDEST_SERVICES - 1}", "service subnet is too large"),
        (f"10.0.32.0/{NARROWEST_SERVICES + 1}", "is too small"),
    ],
)
def test_a_boot_ends_at_what_kubeadm_refuses(machine: MakeMachine, secrets: Secrets, services: str, why: str) -> None:
    made = machine_of(machine, platform_of(secrets, {}), tpu_services_cidr=services)
    refused = made.boot()
    assert refused.code < 0
    assert why in refused.output
    assert not made.exists("/etc/kubernetes/pki")
