"""The boot scripts on VMs with systemd, apt, kubeadm, containerd and kubelets: see tests/bootstrap/vm.

A control plane and a TPU host boot once for all tests; each test leaves a healthy cluster.
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from cryptography import x509

from plan.hosts import CONTAINERD, boot_metadata, control_plane_machines, control_plane_metadata, slice_groups
from sandbox.hosts import cgroups
from sandbox.kubernetes.api import is_true
from sandbox.run_directory import IMPORT_ROOT
from sandbox.tests.emulated_google import Cloud
from sandbox.tests.isolation import short_directory
from sandbox.tests.real_hosts import eventually
from sandbox.toolchain.kubernetes_binaries import KUBERNETES_VERSION
from tests.bootstrap.conftest import NewSecrets
from tests.bootstrap.control_planes import make_secrets, platform_of
from tests.bootstrap.google import ACCESSOR, CONTROL_PLANE, NODES, VERSION_MANAGER, Secrets, email
from tests.bootstrap.vm.lab import Lab, lab
from tests.bootstrap.vm.machine import Place, VirtualMachine
from tests.bootstrap.vm.packages import KUBERNETES, KUBERNETES_FOLDER
from tests.platforms import SELF_MANAGED, load

pytestmark = [pytest.mark.real_pods, pytest.mark.vms]
API_ADDRESS, API_PORT = "10.0.0.5", 6443
FIRST = Place("10.0.0.6", "10.16.1.0/24", API_ADDRESS)
WORKER = Place("10.0.0.9", "10.16.9.0/24")
IMAGE = "registry.k8s.io/kube-scheduler:v" + KUBERNETES_VERSION  # any that is there, for its shell
KEY = f"pkgs.k8s.io{KUBERNETES_FOLDER}/Release.key"
KUBELET = f"pkgs.k8s.io{KUBERNETES_FOLDER}/kubelet_{KUBERNETES}_amd64.deb"
METADATA = "169.254.169.254/"


@dataclass(frozen=True)
class Site:
    """A control plane that has published, and where its platform's secrets are."""

    lab: Lab
    secrets: Secrets
    control_plane: VirtualMachine

    def kubectl(self, *words: str) -> str:
        """What kubectl prints, asked on the control plane."""
        return self.control_plane.run("kubectl", *words)

    def get(self, *words: str) -> Any:
        """Objects as JSON; nothing while the API server is away, or for what is not there."""
        found = self.control_plane.run("kubectl", "get", *words, "--output", "json", check=False)
        return json.loads(found or "{}")

    def found(self, *words: str) -> Any:
        """The same, of what must be there: asked until the API server answers."""
        return eventually(" ".join(words), lambda: self.get(*words))

    def is_ready(self, name: str, since: datetime) -> bool:
        """Whether a node is Ready, and its kubelet has said so after that time."""
        ready = is_true(self.get("node", name), "Ready")
        lease = self.get("lease", name, "--namespace=kube-node-lease").get("spec", {})
        return ready and bool(lease) and datetime.fromisoformat(lease["renewTime"]) > since

    def wait_for_node(self, vm: VirtualMachine, since: datetime) -> None:
        until(vm, f"{vm.name} is Ready", partial(self.is_ready, vm.name, since))

    def joins(self) -> int:
        """How many certificates nodes have asked for with a join token."""
        requests = self.found("certificatesigningrequests")["items"]
        return len([each for each in requests if each["spec"]["username"].startswith("system:bootstrap:")])


def until(vm: VirtualMachine, what: str, probe: Callable[[], object], seconds: float = 400) -> None:
    """Waits; where that fails, the VM's journal tells why."""
    try:
        eventually(what, probe, seconds)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{vm.journal('tpu-boot')[-6000:]}\n{vm.journal()[-6000:]}") from None


@pytest.fixture(scope="module")
def site(google: Cloud, new_secrets: NewSecrets) -> Iterator[Site]:
    secrets = make_secrets(new_secrets())
    members = [(VERSION_MANAGER, CONTROL_PLANE), (ACCESSOR, NODES)]
    google.bind(f"/sm/v1/{secrets.name('join')}", *((role, f"serviceAccount:{email(who)}") for role, who in members))
    platform = platform_of(secrets, {})
    metadata = {**control_plane_metadata(platform, 0), "tpu-api-address": API_ADDRESS}
    with short_directory() as folder, lab(folder, google.emulator.url, CONTAINERD) as made:
        name = control_plane_machines(platform)[0].name
        first = made.machine("control_plane", CONTROL_PLANE, name, FIRST, metadata)
        first.start()
        until(first, "a join token is published", lambda: bool(secrets.states("join")))
        yield Site(made, secrets, first)


@pytest.fixture(scope="module")
def node(site: Site) -> VirtualMachine:
    """A TPU host that has joined. Before that two of its downloads have failed: a key is missing at first, and the
    package of the kubelet has a wrong byte."""
    platform = load(
        {"train": {"machine_type": "ct6e-standard-4t", "topology": "4x4", "max_pods_per_node": 64}},
        cluster={**SELF_MANAGED, "version": KUBERNETES_VERSION},
    )
    metadata = {
        **boot_metadata(platform),
        **slice_groups(platform, platform.slice_plans[0])[0].template.metadata(),
        "created-by": "projects/123456/zones/us-east5-b/instanceGroupManagers/prod-train",
        "tpu-join-secret": site.secrets.name("join"),
    }
    made = site.lab.machine("node", NODES, "prod-train-0", WORKER, metadata)
    site.lab.outside.faults[KEY] = [404]
    site.lab.outside.faults[KUBELET] = ["spoiled"]
    made.start()
    site.wait_for_node(made, datetime.min.replace(tzinfo=UTC))
    until(made, "the script has noted it", lambda: "joined as prod-train-0" in made.journal("tpu-boot"))
    return made


def test_kubeadm_makes_a_cluster_that_runs_in_containers(site: Site) -> None:
    name = site.control_plane.name
    site.wait_for_node(site.control_plane, datetime.min.replace(tzinfo=UTC))
    programs = {f"{each}-{name}" for each in ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")}

    def running() -> bool:
        pods = site.get("pods", "--namespace=kube-system").get("items", [])
        ready = {each["metadata"]["name"] for each in pods if is_true(each, "Ready")}
        return programs <= ready and any(each.startswith("kube-proxy-") for each in ready)

    until(site.control_plane, "static pods and kube-proxy are Ready", running)
    taints = site.found("node", name)["spec"]["taints"]
    assert "node-role.kubernetes.io/control-plane" in {each["key"] for each in taints}
    timers = site.control_plane.run("systemctl", "list-timers", "--all", "--output=json")
    assert {each["unit"] for each in json.loads(timers)} == {"tpu-publish.timer", "tpu-renew.timer"}
    mounted = site.control_plane.run("findmnt", "--noheadings", "--output=FSTYPE,SOURCE", "/var/lib/etcd").split()
    assert mounted[0] == "ext4"
    assert mounted[1].endswith("[/etcd]")


def test_a_node_has_the_labels_and_taints_of_its_metadata(site: Site, node: VirtualMachine) -> None:
    found = site.found("node", node.name)
    wanted = dict(each.split("=", 1) for each in node.vm.record["attributes"]["tpu-node-labels"].split(","))
    wanted |= {
        "cloud.google.com/gke-nodepool": "prod-train",
        "topology.kubernetes.io/region": "us-east5",
        "topology.kubernetes.io/zone": "us-east5-b",
    }
    assert found["metadata"]["labels"].items() >= wanted.items()
    taints = {(each["key"], each.get("value"), each["effect"]) for each in found["spec"]["taints"]}
    assert ("google.com/tpu", "present", "NoSchedule") in taints
    assert found["status"]["capacity"]["pods"] == "64"
    assert found["status"]["nodeInfo"]["kubeletVersion"] == f"v{KUBERNETES_VERSION}"


def test_a_failed_download_heals(site: Site, node: VirtualMachine) -> None:
    """A finding: whatever failed before the join cost the host, in silence. A key that is not there ends the script,
    and systemd starts it again; a package that was spoiled on the way is fetched again by the script itself."""
    journal = node.journal("tpu-boot")
    assert "returned error: 404" in journal
    assert "Scheduled restart job" in journal
    assert journal.index("Hash Sum mismatch") < journal.index("joined as prod-train-0")
    assert not any(site.lab.outside.faults.values())


def test_pods_have_the_nodes_range_and_no_way_to_its_identity(site: Site, node: VirtualMachine) -> None:
    """On a node that a cloud controller has initialised, which is done by hand here. A node whose address is new makes
    kube-proxy start again: the service answers after a moment."""
    status = {"status": {"addresses": [{"type": "InternalIP", "address": WORKER.address}]}}
    site.kubectl("patch", "node", node.name, "--subresource=status", f"--patch={json.dumps(status)}")
    site.kubectl("taint", "node", node.name, "node.cloudprovider.kubernetes.io/uninitialized-", "--overwrite")
    service = '"$KUBERNETES_SERVICE_HOST" "$KUBERNETES_SERVICE_PORT"'
    connect = f"until nc -w 5 {service} </dev/null 2>/dev/null; do sleep 1; done"
    address, reached = run_pod(site, node, "inside", f"hostname -i; {connect}; echo api-server").split()
    assert address.startswith("10.16.9.")
    assert reached == "api-server"
    asking = f"wget -q -T 5 -O - --header 'Metadata-Flavor: Google' http://{METADATA}computeMetadata/v1/instance/?recursive=true"
    assert "refused" in run_pod(site, node, "thief", f"{asking} >/dev/null || echo refused")


def run_pod(site: Site, node: VirtualMachine, name: str, command: str, **spec: Any) -> str:
    """What a pod on the node prints until it ends."""
    container = {"name": "c", "image": IMAGE, "command": ["sh", "-c", command]}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "nodeName": node.name,
            "tolerations": [{"operator": "Exists"}],
            "containers": [container],
            **spec,
        },
    }
    node_file = site.control_plane.folder / "kubelet" / f"{name}.json"  # a folder that the VM sees
    node_file.write_text(json.dumps(pod))
    site.kubectl("create", f"--filename=/var/lib/kubelet/{node_file.name}")
    ended = ("Succeeded", "Failed")
    until(node, f"pod {name} has ended", lambda: site.get("pod", name).get("status", {}).get("phase") in ended)
    return site.kubectl("logs", name)


def test_a_cluster_whose_certificates_have_ended_comes_back(site: Site) -> None:
    """A finding: kubeadm's certificates, valid for a year, were never renewed. Here nobody gets in any more."""
    vm = site.control_plane
    before = identity(site)
    shorten(vm, "1s")
    ended = "certificate has expired"
    until(vm, "kubectl is refused", lambda: ended in vm.run("sh", "-c", "kubectl get nodes 2>&1", check=False))
    vm.run("systemctl", "start", "tpu-renew.service")
    for port in (API_PORT, 2379):
        assert days_left(vm, port) >= 364
    site.wait_for_node(vm, datetime.now(UTC))
    assert identity(site) == before
    new = serial(vm)
    vm.run("systemctl", "start", "tpu-renew.service")
    until(vm, "it says so", lambda: "nothing is renewed" in vm.journal("tpu-renew"))
    assert serial(vm) == new


def shorten(vm: VirtualMachine, validity: str) -> None:
    """Makes all certificates that kubeadm renews anew, valid for so long."""
    known = vm.run("kubectl", "get", "configmap", "kubeadm-config", "--namespace=kube-system", "--output=json")
    config = yaml.safe_load(json.loads(known)["data"]["ClusterConfiguration"])
    (vm.folder / "kubelet" / "short.yaml").write_text(yaml.safe_dump(config | {"certificateValidityPeriod": validity}))
    vm.run("kubeadm", "certs", "renew", "all", "--config=/var/lib/kubelet/short.yaml")


def shown(vm: VirtualMachine, port: int) -> x509.Certificate:
    """What a server on the VM shows; etcd wants a client's certificate, and shows its own before."""
    command = f"openssl s_client -connect 127.0.0.1:{port} </dev/null 2>/dev/null | openssl x509"
    eventually("a certificate", lambda: "BEGIN" in vm.run("sh", "-c", command, check=False))
    return x509.load_pem_x509_certificate(vm.run("sh", "-c", command).encode())


def days_left(vm: VirtualMachine, port: int) -> int:
    return (shown(vm, port).not_valid_after_utc - datetime.now(UTC)) // timedelta(days=1)


def serial(vm: VirtualMachine) -> int:
    return shown(vm, API_PORT).serial_number


def test_a_node_that_boots_again_is_the_same_node(site: Site, node: VirtualMachine) -> None:
    before, joins = site.found("node", node.name), site.joins()
    node.switch_off()
    asked = len(site.lab.outside.asked)
    since = datetime.now(UTC)
    node.start()
    site.wait_for_node(node, since)
    until(node, "the boot has ended", lambda: "Finished tpu-boot" in node.journal("tpu-boot"))
    after = site.found("node", node.name)
    for key in ("uid", "creationTimestamp", "labels"):
        assert after["metadata"][key] == before["metadata"][key]
    assert site.joins() == joins
    new = {url for name, url in site.lab.outside.asked[asked:] if name == node.name}
    assert all(url.startswith(METADATA) for url in new), new
    assert METADATA.removesuffix("/") in node.run("iptables", "--list-rules", "FORWARD")


def test_a_control_plane_that_boots_again_is_the_same_cluster(site: Site) -> None:
    vm = site.control_plane
    before, published = identity(site), len(site.secrets.states("join"))
    vm.switch_off()
    since = datetime.now(UTC)
    vm.start()
    site.wait_for_node(vm, since)
    until(vm, "it publishes again", lambda: len(site.secrets.states("join")) > published)
    assert "Failed" not in vm.journal("tpu-publish")
    assert identity(site) == before
    until(vm, "the boot has ended", lambda: "Finished tpu-boot" in vm.journal("tpu-boot"))
    assert "kubeadm" not in vm.journal("tpu-boot")


def identity(site: Site) -> list[str]:
    """What makes a cluster and its first node the ones they are."""
    objects = [site.found("namespace", "kube-system"), site.found("node", site.control_plane.name)]
    return [*(each["metadata"]["uid"] for each in objects), site.control_plane.run("cat", "/etc/kubernetes/pki/ca.crt")]


def test_a_node_that_is_remade_has_a_node_of_its_own(site: Site, node: VirtualMachine) -> None:
    """A finding: it took over labels and taints of the VM before it."""
    before, joins = site.found("node", node.name), site.joins()
    node.vm.record["id"] += 100
    node.vm.record["attributes"]["tpu-node-labels"] += ",example.com/template=second"
    since = datetime.now(UTC)
    node.remake()
    node.start()
    until(node, "it has joined", lambda: "joined as prod-train-0" in node.journal("tpu-boot"))
    site.wait_for_node(node, since)
    after = site.found("node", node.name)
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert after["metadata"]["labels"]["example.com/template"] == "second"
    assert site.joins() == joins + 1


def test_a_new_vm_brings_back_the_cluster_of_its_data_disk(site: Site) -> None:
    vm = site.control_plane
    kept = site.found("namespace", "kube-system")["metadata"]["uid"]
    authority = vm.run("cat", "/etc/kubernetes/pki/ca.crt")
    vm.vm.record["id"] += 100
    since = datetime.now(UTC)
    vm.remake()
    vm.start()
    until(vm, "it is up", lambda: "Finished tpu-boot" in vm.journal("tpu-boot"))
    assert "the data disk holds a cluster: bringing it back" in vm.journal("tpu-boot")
    site.wait_for_node(vm, since)
    assert site.found("namespace", "kube-system")["metadata"]["uid"] == kept
    assert vm.run("cat", "/etc/kubernetes/pki/ca.crt") == authority


KILLED = """
import sys, time
from pathlib import Path
from plan.hosts import CONTAINERD
from tests.bootstrap.google import CONTROL_PLANE
from tests.bootstrap.vm.lab import lab
from tests.bootstrap.vm.machine import Place
needed = ("cluster-name", "api-address", "kubernetes-version", "pods-cidr", "services-cidr", "replicas", "replica")
with lab(Path(sys.argv[1]), "http://127.0.0.1:1", CONTAINERD) as made:
    place, metadata = Place("10.0.0.6", "10.16.1.0/24"), {f"tpu-{name}": "1" for name in needed}
    made.machine("control_plane", CONTROL_PLANE, "lost", place, metadata).start()
    time.sleep(600)
"""


def test_a_killed_test_leaves_nothing_but_cgroups() -> None:
    with short_directory() as folder:
        command = [sys.executable, "-c", KILLED, str(folder)]
        with subprocess.Popen(command, cwd=IMPORT_ROOT) as killed:
            try:
                own = folder / "lost"
                eventually("its data disk is mounted", lambda: str(own) in loop_devices())
                first = psutil.Process(int((own / "pid").read_text()))
                processes = [first, *first.children(recursive=True)]
            finally:
                killed.send_signal(signal.SIGKILL)
        _, alive = psutil.wait_procs(processes, timeout=120)
        assert alive == []
        eventually("only cgroups are left", lambda: traces(folder) == ["cgroups"])
        cgroups.remove(folder)
        assert traces(folder) == []


def loop_devices() -> str:
    return subprocess.run(["losetup", "--list"], capture_output=True, text=True, check=True).stdout


def traces(folder: Path) -> list[str]:
    """What there is of VMs outside their folder."""
    found = {
        "mounts": str(folder) in Path("/proc/self/mountinfo").read_text(),
        "loop devices": str(folder) in loop_devices(),
        "wires": any(name.startswith("w0a0000") for _, name in socket.if_nameindex()),
        "rules": b"KUBE-" in subprocess.run(["iptables-save"], capture_output=True, check=True).stdout,
        "cgroups": any((each / cgroups.name_of(folder)).exists() for each in cgroups.hierarchies()),
    }
    return [name for name, there in found.items() if there]
