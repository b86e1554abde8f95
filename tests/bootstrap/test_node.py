"""The boot script of a node, run dry."""

from __future__ import annotations

import json
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from components.compute.boot_script import boot_script
from plan.hosts import METADATA_GROUP
from tests.bootstrap.conftest import MakeMachine, NewSecrets
from tests.bootstrap.google import DOCKER_KEY, KUBERNETES_KEY, STRANGE_KEY, STRANGER, Secrets, armored, fingerprint
from tests.bootstrap.machine import Boot, Machine
from tests.bootstrap.nodes import LABELS, make_node

pytestmark = pytest.mark.sandbox

TOKEN = "abcdef.0123456789abcdef"
CA_HASH = "sha256:" + "5f" * 32


def in_hours(hours: float) -> str:
    return (datetime.now(UTC) + timedelta(hours=hours)).strftime("%Y-%m-%dT%H:%M:%SZ")


def join_payload(**changes: str) -> dict[str, str]:
    own = {"apiServer": "10.0.0.5:6443", "apiName": "api.prod.internal", "caCertHash": CA_HASH}
    return {**own, "token": TOKEN, "expires": in_hours(2), **changes}


@pytest.fixture
def node(machine: MakeMachine, secrets: Secrets) -> Machine:
    return make_node(machine, secrets)


def joins(booted: Boot) -> int:
    return len(booted.of("kubeadm", "join"))


@pytest.fixture(scope="module")
def first(machine: MakeMachine, new_secrets: NewSecrets) -> tuple[Machine, Boot]:
    """A node after its first boot, for tests that only look."""
    secrets = new_secrets()
    node = make_node(machine, secrets)
    secrets.add("join", join_payload())
    return node, node.boot()


def test_a_node_joins_with_its_labels_and_taints(first: tuple[Machine, Boot]) -> None:
    node, booted = first
    assert booted.code == 0, booted.output
    (config,) = node.kubeadm_configs("join")
    assert config.stat().st_mode & 0o777 == 0o600
    assert yaml.safe_load(node.as_on_a_vm(config.read_text())) == {
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "JoinConfiguration",
        "discovery": {
            "bootstrapToken": {"token": TOKEN, "apiServerEndpoint": "10.0.0.5:6443", "caCertHashes": [CA_HASH]}
        },
        "nodeRegistration": {
            "name": node.vm.record["name"],
            "criSocket": "unix:///run/containerd/containerd.sock",
            "taints": [{"key": "google.com/tpu", "value": "present", "effect": "NoSchedule"}],
            "kubeletExtraArgs": [
                {"name": "cloud-provider", "value": "external"},
                {
                    "name": "node-labels",
                    "value": f"{LABELS},cloud.google.com/gke-nodepool=prod-train"
                    ",topology.kubernetes.io/region=us-east5,topology.kubernetes.io/zone=us-east5-b",
                },
            ],
        },
        "patches": {"directory": "/etc/tpu-boot/patches"},
    }
    assert yaml.safe_load(node.read("/etc/tpu-boot/patches/kubeletconfiguration.yaml")) == {
        "maxPods": 64,
        "shutdownGracePeriod": "30s",
        "shutdownGracePeriodCriticalPods": "10s",
    }
    assert node.read("/etc/hosts") == "127.0.0.1 localhost\n10.0.0.5 api.prod.internal\n"


def test_the_token_is_nowhere_but_in_memory(node: Machine, secrets: Secrets) -> None:
    secrets.add("join", join_payload())
    node.say("fail-join", 1)
    left_between_tries: list[Path] = []
    node.vm.on_pause = lambda _number: left_between_tries.extend((node.root / "run").rglob("*.yaml"))
    booted = node.boot()
    assert joins(booted) == 2
    assert len(node.vm.pauses) == 1
    assert left_between_tries == []
    seen = booted.output + str(booted.calls) + node.disk_text()
    assert TOKEN not in seen
    assert node.vm.token not in seen
    assert list((node.root / "run").iterdir()) == []


def test_packages_come_signed_and_in_the_versions_wanted(first: tuple[Machine, Boot]) -> None:
    node, booted = first
    (installed,) = (call for call in booted.of("apt-get") if "install" in call)
    assert installed[installed.index("--yes") :] == [
        *("--yes", "--no-install-recommends", "--allow-change-held-packages", "--allow-downgrades"),
        *("containerd.io=2.1.5-1~*", "kubelet=1.34.2-*", "kubeadm=1.34.2-*", "kubectl=1.34.2-*"),
        *("conntrack", "ethtool", "iptables", "socat"),
    ]
    assert booted.of("apt-mark") == [
        ["apt-mark", "hold", "containerd.io", "kubelet", "kubeadm", "kubectl", "kubernetes-cni", "cri-tools"]
    ]
    assert node.read("/etc/apt/sources.list.d/docker.list") == (
        "deb [signed-by=/etc/apt/keyrings/docker.asc] https://download.docker.com/linux/ubuntu noble stable\n"
    )
    assert node.read("/etc/apt/sources.list.d/kubernetes.list") == (
        "deb [signed-by=/etc/apt/keyrings/kubernetes.asc] https://pkgs.k8s.io/core:/stable:/v1.34/deb/ /\n"
    )
    assert node.read("/etc/apt/keyrings/kubernetes.asc") == armored(KUBERNETES_KEY)
    assert node.read("/etc/apt/keyrings/docker.asc") == armored(DOCKER_KEY)


@pytest.mark.parametrize("keys", [(STRANGE_KEY,), (DOCKER_KEY, STRANGE_KEY), ()], ids=["another", "one more", "none"])
def test_packages_of_another_signer_are_not_trusted(node: Machine, secrets: Secrets, keys: tuple[bytes, ...]) -> None:
    """A finding: whatever key a package server gave was trusted."""
    secrets.add("join", join_payload())
    node.vm.keys = keys or (b"\x04",)
    refused = node.boot()
    assert refused.code == 1
    assert f"linux/ubuntu/gpg is not the key {fingerprint(DOCKER_KEY)}, but" in refused.output
    assert refused.of("apt-get") == []
    assert not node.exists("/etc/apt/keyrings/docker.asc")


def test_a_boot_that_fails_is_tried_again(node: Machine, secrets: Secrets) -> None:
    """A finding: a host whose first download failed stayed out for good, and nobody was told."""
    secrets.add("join", join_payload())
    node.vm.failing_downloads = 100
    failed = node.boot()
    assert failed.code != 0
    assert joins(failed) == 0
    unit = node.read("/etc/systemd/system/tpu-boot.service")
    for line in (
        "Type=oneshot",
        "Restart=on-failure",
        "RestartSec=30",
        "StartLimitIntervalSec=0",
        "TimeoutStartSec=infinity",
    ):
        assert f"{line}\n" in unit
    assert "ExecStart=/usr/local/sbin/tpu-node boot\n" in unit
    node.vm.failing_downloads = 0
    again = node.start_boot_unit()
    assert again.code == 0, again.output
    assert joins(again) == 1


def test_a_boot_that_was_cut_short_is_finished(node: Machine, secrets: Secrets) -> None:
    """Packages that are half installed keep apt from installing others."""
    secrets.add("join", join_payload())
    booted = node.boot()
    calls = [call[:2] for call in booted.calls if call[0] in ("dpkg", "apt-get")]
    assert calls[0] == ["dpkg", "--configure"]


def test_a_vm_that_is_remade_forgets_the_node_of_the_one_before(node: Machine, secrets: Secrets) -> None:
    """A finding: it took over the labels and taints of that Node. Tried with a real API server in test_running.py."""
    secrets.add("join", join_payload())
    node.say("node-made", "2026-01-01T00:00:00Z")
    booted = node.boot()
    assert booted.code == 0, booted.output
    own = ["kubectl", "--kubeconfig", "/etc/kubernetes/kubelet.conf"]
    steps = [call for call in booted.calls if call[:2] == ["systemctl", "stop"] or call[:2] == ["systemctl", "start"]]
    assert steps[-2:] == [["systemctl", "stop", "kubelet"], ["systemctl", "start", "kubelet"]]
    deleted = booted.calls.index([*own, "delete", "node", node.vm.record["name"]])
    assert booted.calls.index(steps[-2]) < deleted < booted.calls.index(steps[-1])


def test_a_cluster_that_does_not_let_nodes_forget_is_joined_all_the_same(node: Machine, secrets: Secrets) -> None:
    secrets.add("join", join_payload())
    node.say("node-made", "2026-01-01T00:00:00Z")
    node.say("kept-node", "")
    booted = node.boot()
    assert booted.code == 0
    assert "its labels and taints stay as they were" in booted.output
    assert booted.of("systemctl", "start", "kubelet")


def test_a_node_of_this_boot_is_kept(first: tuple[Machine, Boot]) -> None:
    _, booted = first
    assert [call for call in booted.of("kubectl") if "delete" in call] == []
    assert booted.of("systemctl", "stop") == []


def test_what_the_image_brings_is_not_installed_again(node: Machine, secrets: Secrets) -> None:
    secrets.add("join", join_payload())
    brought = {"containerd.io": "2.1.5-1~ubuntu.24.04~noble", "kubelet": "1.34.2-1.1", "kubectl": "1.34.2-1.1"}
    brought |= {"kubeadm": "1.34.20-1.1", "conntrack": "1:1.4", "ethtool": "1:6", "iptables": "1.8", "socat": "1.8"}
    node.say("packages", "\n".join(f"{name} {version}" for name, version in brought.items()))
    (installed,) = (call for call in node.boot().of("apt-get") if "install" in call)
    assert installed[-1] == "kubeadm=1.34.2-*"  # 1.34.20 is another version
    assert "socat" not in installed
    assert "kubelet=1.34.2-*" not in installed


def test_pods_have_a_network_and_no_metadata_server(first: tuple[Machine, Boot]) -> None:
    node, booted = first
    network = json.loads(node.read("/etc/cni/net.d/10-pods.conflist"))
    assert [plugin["type"] for plugin in network["plugins"]] == ["ptp", "portmap"]
    assert network["plugins"][0]["ipam"]["ranges"] == [[{"subnet": "10.16.3.0/24"}]]
    assert network["plugins"][0]["mtu"] == 8896
    # the guest agent must not take the pod range for the host
    assert "ip_aliases = false" in node.read("/etc/default/instance_configs.cfg")
    agent = booted.calls.index(["systemctl", "try-restart", "google-guest-agent"])
    flush = ["ip", "route", "flush", "table", "local", "type", "local", "exact", "10.16.3.0/24"]
    assert booted.calls.index(flush) > agent
    guard = node.read("/etc/systemd/system/tpu-metadata-guard.service")
    assert "--insert FORWARD --destination 169.254.169.254/32 --protocol tcp ! --dport 53 --jump DROP\n" in guard
    host_network = next(line for line in guard.splitlines() if "OUTPUT" in line)
    assert host_network.startswith("ExecStart=-")  # a kernel without the match must not keep the kubelet from starting
    assert f"--match cgroup --path kubepods.slice   --match owner ! --gid-owner {METADATA_GROUP}" in host_network
    assert "Before=kubelet.service" in guard
    started = booted.calls.index(["systemctl", "enable", "--now", "tpu-metadata-guard.service"])
    assert started < next(n for n, call in enumerate(booted.calls) if call[:2] == ["kubeadm", "join"])


def test_hosts_of_a_cluster_that_exists_leave_its_programs_their_metadata_server(
    node: Machine, secrets: Secrets
) -> None:
    secrets.add("join", join_payload())
    del node.vm.record["attributes"]["tpu-metadata-group"]
    assert node.boot().code == 0
    guard = node.read("/etc/systemd/system/tpu-metadata-guard.service")
    assert "--insert FORWARD" in guard
    assert "OUTPUT" not in guard


def test_newer_guest_agents_are_restarted_their_own_way(node: Machine, secrets: Secrets) -> None:
    secrets.add("join", join_payload())
    node.offer("ggactl_plugin")
    booted = node.boot()
    assert booted.of("ggactl_plugin") == [["ggactl_plugin", "coreplugin", "restart"]]
    assert booted.of("systemctl", "try-restart") == []


def test_the_host_is_prepared(first: tuple[Machine, Boot]) -> None:
    node, booted = first
    assert booted.of("swapoff") == [["swapoff", "--all"]]
    assert "swap" not in node.read("/etc/fstab")
    assert booted.of("modprobe") == [["modprobe", "--all", "overlay", "br_netfilter"]]
    assert "net.ipv4.ip_forward = 1\n" in node.read("/etc/sysctl.d/90-kubernetes.conf")
    containerd = node.read("/etc/containerd/config.toml")
    assert "SystemdCgroup = true" in containerd
    assert "enable_cdi = true" in containerd
    assert "LimitMEMLOCK=infinity" in node.read("/etc/systemd/system/containerd.service.d/20-memlock.conf")


def test_a_later_boot_only_guards_the_metadata_server(node: Machine, secrets: Secrets) -> None:
    secrets.add("join", join_payload())
    assert node.boot().code == 0
    again = node.boot()
    assert again.code == 0
    tools = {"cat", "curl", "date", "install", "mktemp", "python3", "rm", "systemctl"}
    assert {call[0] for call in again.calls} <= tools
    assert again.of("systemctl", "enable", "--now", "tpu-metadata-guard.service")
    assert not [call for call in again.of("curl") if "secretmanager" in str(call)]


def test_an_image_of_a_joined_disk_joins_under_its_own_name(node: Machine, secrets: Secrets) -> None:
    secrets.add("join", join_payload())
    node.boot()
    node.vm.record |= {"id": 77, "name": "other"}
    assert joins(node.boot()) == 1
    assert "name: other" in node.kubeadm_configs("join")[1].read_text().replace('"', "")


def test_an_expired_token_is_waited_out(node: Machine, secrets: Secrets) -> None:
    secrets.add("join", join_payload(expires=in_hours(-1), token="expire.d000000000000000"))

    def mint(pause: int) -> None:
        if pause == 3:
            secrets.add("join", join_payload())

    node.vm.on_pause = mint
    booted = node.boot()
    assert booted.code == 0
    assert booted.output.count("waiting for the next one") == 3
    assert joins(booted) == 1
    assert TOKEN in node.kubeadm_configs("join")[0].read_text()


def test_a_missing_secret_is_waited_for_with_growing_pauses(node: Machine, secrets: Secrets) -> None:
    def mint(pause: int) -> None:
        if pause == 8:
            secrets.add("join", join_payload())

    node.vm.on_pause = mint
    assert node.boot().code == 0
    assert node.vm.pauses == [1, 2, 4, 8, 16, 32, 60, 60]


def test_payloads_that_cannot_be_trusted_are_refused_one_by_one(node: Machine, secrets: Secrets) -> None:
    refused = {
        "no hash": ({"caCertHash": ""}, "names no hash of the certificate authority"),
        "short hash": ({"caCertHash": "sha256:1234"}, "names no hash of the certificate authority"),
        "short token": ({"token": "abcdef"}, "no token, or no address"),
        "more YAML": ({"apiServer": '10.0.0.5:6443"\n    unsafeSkip: "x'}, "no token, or no address"),
        "no time": ({"expires": "tomorrow"}, "expired, or is about to"),
    }
    payloads = [join_payload(**changes) for changes, _ in refused.values()]
    secrets.add("join", payloads[0])
    coming = iter([*payloads[1:], join_payload()])
    node.vm.on_pause = lambda _number: secrets.add("join", next(coming))
    booted = node.boot()
    assert booted.code == 0, booted.output
    lines = iter(booted.output.splitlines())
    for case, (_, reason) in refused.items():
        assert any(reason in line for line in lines), case
    assert joins(booted) == 1
    assert TOKEN not in booted.output


def test_patience_has_an_end(machine: MakeMachine, secrets: Secrets) -> None:
    given_up = make_node(machine, secrets, tpu_join_seconds="0").boot()
    assert given_up.code == 1
    assert "no join within 0 seconds" in given_up.output
    assert joins(given_up) == 0


def test_an_account_without_the_grant_learns_nothing(machine: MakeMachine, secrets: Secrets) -> None:
    node = make_node(machine, secrets, STRANGER, tpu_join_seconds="0")
    secrets.add("join", join_payload())
    refused = node.boot()
    assert refused.code == 1
    assert "cannot be read yet" in refused.output
    assert "403" in refused.output
    assert "Traceback" not in refused.output


def test_a_failed_join_is_cleaned_up_and_tried_again(node: Machine, secrets: Secrets) -> None:
    secrets.add("join", join_payload())
    node.say("fail-join", 2)
    booted = node.boot()
    assert booted.code == 0
    verbs = [call[1] for call in booted.of("kubeadm")]
    assert verbs == ["join", "reset", "join", "reset", "join"]


def test_a_node_without_settings_says_which(node: Machine) -> None:
    del node.vm.record["attributes"]["tpu-join-secret"]
    refused = node.boot()
    assert refused.code == 1
    assert "this VM has no metadata attributes.tpu-join-secret" in refused.output
    assert refused.of("apt-get") == []


def test_a_cluster_that_exists_needs_no_name(machine: MakeMachine, secrets: Secrets) -> None:
    node = make_node(machine, secrets, tpu_node_taints="")
    payload = join_payload()
    del payload["apiName"]
    secrets.add("join", payload)
    assert node.boot().code == 0
    assert node.read("/etc/hosts") == "127.0.0.1 localhost\n"
    assert yaml.safe_load(node.kubeadm_configs("join")[0].read_text())["nodeRegistration"]["taints"] == []


NAME = st.from_regex(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,20}[A-Za-z0-9])?", fullmatch=True)
KEY = st.tuples(st.sampled_from(["", "cloud.google.com/", "tpu-platform/"]), NAME).map("".join)
VALUE = st.one_of(NAME, st.sampled_from(["", "1", "true", "null", "0x1f", "1e3", "2x2x2"]))
EFFECT = st.sampled_from(["NoSchedule", "PreferNoSchedule", "NoExecute"])


@settings(max_examples=10, deadline=None)
@given(
    labels=st.dictionaries(KEY, VALUE, min_size=1, max_size=4),
    taints=st.lists(st.tuples(KEY, VALUE, EFFECT), max_size=3),
)
def test_labels_and_taints_arrive_as_they_are(labels: dict[str, str], taints: list[tuple[str, str, str]]) -> None:
    """Every label and taint that Kubernetes allows, through the script's own functions."""
    attributes = {
        "created-by": "projects/1/zones/us-east5-b/instanceGroupManagers/prod-train",
        "tpu-node-labels": ",".join(f"{key}={value}" for key, value in labels.items()),
        "tpu-node-taints": ",".join(f"{key}={value}:{effect}" for key, value, effect in taints),
    }
    record = {"attributes": attributes, "name": "vm", "zone": "projects/1/zones/us-east5-b"}
    functions = boot_script("node").removesuffix('\nmain "$@"\n')
    assert not functions.endswith('main "$@"\n')
    ending = """
    read_json INSTANCE
    JOIN=([token]= [apiServer]= [caCertHash]=)
    NODE_NAME=vm NODE_LABELS=$(node_labels) NODE_TAINTS=$(setting attributes.tpu-node-taints '')
    join_configuration
    """
    done = subprocess.run(
        ["bash", "-c", functions.replace("/run/tpu-boot.", "${TMPDIR:-/tmp}/tpu-boot.") + ending],
        input=json.dumps(record),
        capture_output=True,
        text=True,
        check=True,
    )
    registration = yaml.safe_load(done.stdout)["nodeRegistration"]
    (sent,) = (arg["value"] for arg in registration["kubeletExtraArgs"] if arg["name"] == "node-labels")
    assert dict(label.split("=", 1) for label in sent.split(",")).items() >= labels.items()
    assert registration["taints"] == [{"key": k, "value": v, "effect": e} for k, v, e in taints]
