"""A control plane that runs as the boot scripts and kubeadm described it: it publishes, is joined, and comes back.

Not run are kubelets and containers, and with them what waits for a kubelet: a replica's member of etcd.
"""

from __future__ import annotations

import base64
import json
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_network
from pathlib import Path

import httpx
import pytest
import yaml
from cryptography import x509

from plan.platform import Platform
from sandbox.google.machines import MachineType
from sandbox.kubernetes.joining import JoinSecret, Kubelet, join
from sandbox.kubernetes.kubeadm import PREINSTALLED
from sandbox.kubernetes.loops import wait_until
from sandbox.kubernetes.supervisor import free_ports
from sandbox.toolchain.kubernetes_binaries import KUBERNETES_VERSION
from tests.bootstrap.conftest import MakeMachine, NewSecrets
from tests.bootstrap.control_planes import (
    api_name,
    ca_hash,
    certificate,
    command,
    kubelet,
    kubelet_flags,
    machine_of,
    make_secrets,
    platform_of,
    served_names,
)
from tests.bootstrap.google import Secrets
from tests.bootstrap.machine import Machine
from tests.bootstrap.nodes import LABELS, make_node
from tests.bootstrap.running import Running, arguments, running

pytestmark = pytest.mark.sandbox

CLUSTER_INFO = "/api/v1/namespaces/kube-public/configmaps/cluster-info"


@dataclass(frozen=True)
class Live:
    """A platform whose first replica runs as kubeadm described it, and has published."""

    platform: Platform
    secrets: Secrets
    control_plane: Running


def get(control_plane: Running, path: str, token: str = "") -> httpx.Response:
    url, headers = f"https://{control_plane.address}{path}", {"Authorization": f"Bearer {token}"} if token else {}
    return httpx.get(url, headers=headers, verify=False, timeout=60, trust_env=False)


def serving(made: Machine) -> Machine:
    """A machine that has booted, and whose API server gets a free port."""
    (made.api_port,) = free_ports(1)
    boot = made.boot()
    assert boot.code == 0, boot.output
    return made


@pytest.fixture(scope="module")
def live(machine: MakeMachine, new_secrets: NewSecrets, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    secrets = make_secrets(new_secrets())
    platform = platform_of(secrets, {"replicas": 3})
    made = serving(machine_of(machine, platform, tpu_api_address="127.0.0.1"))
    with running(made, tmp_path_factory.mktemp("running")) as control_plane:
        published = command(made, "publish")
        assert published.code == 0, published.output
        # A dry run of kubeadm does not wait for the signature, but goes on with a cluster of its own making.
        identity, _ = secrets.newest("join")["token"].split(".")
        signature = f"jws-kubeconfig-{identity}"
        wait_until(signature, lambda: signature in get(control_plane, CLUSTER_INFO).json()["data"], 240)
        yield Live(platform, secrets, control_plane)


def test_strangers_see_health_and_how_to_join_and_nothing_else(live: Live) -> None:
    assert {get(live.control_plane, path).status_code for path in ("/readyz", "/livez", "/healthz", CLUSTER_INFO)} == {
        200
    }
    assert {get(live.control_plane, path).status_code for path in ("/version", "/api", "/api/v1/namespaces")} == {401}


def test_secrets_lie_encrypted_on_the_data_disk(live: Live) -> None:
    live.control_plane.kubectl("create", "secret", "generic", "tried", "--from-literal=word=plainly-readable")
    kept = (live.control_plane.made.root / "var/lib/tpu-platform/etcd/member/snap/db").read_bytes()
    wal = b"".join(path.read_bytes() for path in live.control_plane.made.root.glob("var/lib/etcd/member/wal/*"))
    assert b"k8s:enc:secretbox:v1:first:" in kept + wal
    assert b"plainly-readable" not in kept + wal


def test_every_request_is_audited_without_its_content(live: Live) -> None:
    live.control_plane.kubectl("create", "configmap", "audited", "--from-literal=word=not-in-the-log")

    def log() -> str:
        return live.control_plane.made.read("/var/log/kubernetes/audit/audit.log")

    # The last event of a request is written after its answer.
    wait_until("the request's events", lambda: '"name":"audited"' in log(), 60)
    assert "not-in-the-log" not in log()


def test_the_deployer_administers_the_cluster_with_what_is_published(live: Live) -> None:
    token = live.secrets.newest("access")["status"]["token"]
    assert get(live.control_plane, "/api/v1/nodes", token).status_code == 200
    endpoint = live.secrets.newest("endpoint")
    assert endpoint["server"] == f"https://{live.control_plane.address}"
    assert base64.b64decode(endpoint["ca"]).decode() == live.control_plane.made.read("/etc/kubernetes/pki/ca.crt")


def test_publishing_leaves_nothing_behind(live: Live) -> None:
    """As on a VM it ran in "/", and without a home directory."""
    made = live.control_plane.made
    assert sorted(path.name for path in made.root.iterdir()) == ["dev", "etc", "run", "usr", "var"]
    assert list((made.root / "run").iterdir()) == []


def joining(live: Live, machine: MakeMachine, secrets: Secrets, **changes: str) -> Machine:
    """A node that may read what the platform published, but for these changes."""
    node = make_node(machine, secrets, tpu_join_seconds="0")
    secrets.add("join", live.secrets.newest("join") | changes)
    node.say("live", "")
    return node


@pytest.fixture(scope="module")
def joined(live: Live, machine: MakeMachine, new_secrets: NewSecrets) -> Machine:
    node = joining(live, machine, new_secrets())
    boot = node.boot()
    assert boot.code == 0, boot.output
    return node


def test_a_node_joins_by_what_is_published(live: Live, joined: Machine) -> None:
    """Discovery, the pinned authority and the cluster's configuration are the real ones."""
    assert kubelet(joined)["maxPods"] == 64
    assert kubelet(joined)["clusterDNS"] == [str(ip_network(live.platform.network.services_cidr)[10])]
    flags = kubelet_flags(joined)
    assert flags.pop("node-labels").startswith(f"{LABELS},cloud.google.com/gke-nodepool=")
    assert flags == {"cloud-provider": "external", "register-with-taints": "google.com/tpu=present:NoSchedule"}


def test_the_cluster_takes_a_node_as_the_sandbox_registers_it(live: Live, joined: Machine) -> None:
    """With the labels that the script gives the kubelet, under the rights that kubeadm gives nodes."""
    labels = dict(label.split("=", 1) for label in kubelet_flags(joined)["node-labels"].split(","))
    name, host = joined.vm.record["name"], MachineType("host", vcpus=4, memory_gb=16)
    taints = [{"key": "google.com/tpu", "value": "present", "effect": "NoSchedule"}]
    secret = JoinSecret.model_validate(live.secrets.newest("join"))
    join(secret, Kubelet(name, "uuid", "10.0.0.8", host, KUBERNETES_VERSION, labels, taints, max_pods=64))
    node = json.loads(live.control_plane.kubectl("get", "node", name, "--output", "json"))
    assert node["metadata"]["labels"].items() >= labels.items()
    assert taints[0] in node["spec"]["taints"]


def test_the_sandbox_knows_the_rights_that_kubeadm_gives(live: Live) -> None:
    """What its clusters are made with is what kubeadm puts into one."""
    for known in yaml.safe_load_all(PREINSTALLED.read_text()):
        meta = known["metadata"]
        where = ["--namespace", meta["namespace"]] if "namespace" in meta else []
        made = live.control_plane.kubectl("get", known["kind"], meta["name"], *where, "--output", "json")
        assert {key: json.loads(made).get(key) for key in known.keys() - {"metadata"}} == {
            key: value for key, value in known.items() if key != "metadata"
        }, meta["name"]


def test_no_token_outlives_two_hours(live: Live) -> None:
    kind = "--field-selector=type=bootstrap.kubernetes.io/token"
    found = json.loads(
        live.control_plane.kubectl("get", "secrets", "--namespace", "kube-system", kind, "--output", "json")
    )
    ends = [datetime.fromisoformat(base64.b64decode(each["data"]["expiration"]).decode()) for each in found["items"]]
    assert len(ends) == 3  # of the first boot, of the join secret, of the keys that wait for replicas
    assert max(ends) <= datetime.now(UTC) + timedelta(hours=2)


def test_a_node_does_not_join_a_cluster_with_another_authority(
    live: Live, machine: MakeMachine, secrets: Secrets
) -> None:
    assert live.secrets.newest("join")["caCertHash"] == ca_hash(live.control_plane.made)
    refused = joining(live, machine, secrets, caCertHash="sha256:" + "5f" * 32).boot()
    assert refused.code == 1
    assert "none of the public keys" in refused.output


def test_a_replica_takes_the_keys_of_the_first_one(live: Live, machine: MakeMachine, new_secrets: NewSecrets) -> None:
    secrets = make_secrets(new_secrets())
    secrets.add("peers", live.secrets.newest("peers") | {"apiServer": live.control_plane.address})
    replica = machine_of(machine, live.platform, 1, tpu_peer_secret=secrets.name("peers"))
    replica.say("live", "")
    boot = replica.boot()
    assert boot.code == 0, boot.output
    for key in (f"/etc/kubernetes/pki/{name}.key" for name in ("ca", "sa", "etcd/ca", "front-proxy-ca")):
        assert replica.read(key) == live.control_plane.made.read(key)
    assert served_names(replica, "apiserver") >= {replica.vm.record["name"], api_name(replica), "10.0.0.7", "127.0.0.1"}
    # Files go by the paths of the first one, whose arguments the cluster keeps.
    first = live.control_plane.made
    served = {first.as_on_a_vm(value) for value in arguments(replica, "kube-apiserver").values()}
    own_files = {value for value in served if value.startswith("/etc/kubernetes/api-server/")}
    assert len(own_files) == 3
    assert [file for file in own_files if not replica.exists(file)] == []


def test_what_makes_a_replica_goes_once_all_are_ready(live: Live) -> None:
    """Counted by the real kubectl."""
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    labels = {"node-role.kubernetes.io/control-plane": ""}
    made = live.control_plane.made
    for number in range(3):
        metadata = {"name": f"replica-{number}", "labels": labels}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": ready}
        made.say("node.yaml", yaml.safe_dump(node))
        live.control_plane.kubectl("create", "--filename", str(made.folder / "node.yaml"))
    assert live.secrets.states("peers")[-1] == "ENABLED"
    published = command(made, "publish")
    assert published.code == 0, published.output
    assert set(live.secrets.states("peers")) == {"DESTROYED"}


def test_a_new_vm_serves_the_cluster_of_its_disk(machine: MakeMachine, secrets: Secrets, tmp_path: Path) -> None:
    """What kubeadm puts into a cluster goes over what is there, and what was encrypted and signed is still valid."""
    platform = platform_of(secrets, {})
    old = serving(machine_of(machine, platform, tpu_api_address="127.0.0.1"))
    with running(old, tmp_path / "old") as before:
        before.kubectl("create", "secret", "generic", "kept", "--from-literal=word=still-there")
        before.kubectl("create", "serviceaccount", "visitor")
        token = before.kubectl("create", "token", "visitor").strip()
    new = serving(machine_of(machine, platform, 0, old, tpu_api_address="127.0.0.1"))
    with running(new, tmp_path / "new") as after:
        found = after.kubectl("get", "secret", "kept", "--output", "jsonpath={.data.word}")
        assert base64.b64decode(found) == b"still-there"
        assert get(after, "/api", token).status_code == 200
        assert get(after, "/api", token + "x").status_code == 401


def test_renewed_certificates_serve_the_same_cluster(machine: MakeMachine, secrets: Secrets, tmp_path: Path) -> None:
    """A finding: kubeadm's certificates, valid for a year, were never renewed. What was published stays valid."""
    make_secrets(secrets)
    made = machine_of(machine, platform_of(secrets, {}), tpu_api_address="127.0.0.1")
    made.say("validity", "1h")
    serving(made)
    with running(made, tmp_path / "before") as before:
        published = command(made, "publish")
        assert published.code == 0, published.output
        before.kubectl("create", "secret", "generic", "kept", "--from-literal=word=still-there")
        old = shown(before)
        assert old.not_valid_after_utc < datetime.now(UTC) + timedelta(hours=2)
        made.say("validity", "8760h")
        renewed = command(made, "renew")
        assert renewed.code == 0, renewed.output
    with running(made, tmp_path / "after") as after:
        new = shown(after)
        assert new.not_valid_after_utc > datetime.now(UTC) + timedelta(days=360)
        new.verify_directly_issued_by(certificate(made, "ca"))
        # The API server reached etcd and kubelets' signer; people, hosts and the next run of the timer find a way in.
        assert after.kubectl("get", "secret", "kept", "--output", "name").strip() == "secret/kept"
        assert get(after, "/api/v1/nodes", secrets.newest("access")["status"]["token"]).status_code == 200
        assert secrets.newest("join")["caCertHash"] == ca_hash(made)
        assert command(made, "publish").code == 0


def shown(control_plane: Running) -> x509.Certificate:
    """The certificate that the API server shows."""
    host, _, port = control_plane.address.partition(":")
    return x509.load_pem_x509_certificate(ssl.get_server_certificate((host, int(port))).encode())


def test_a_vm_that_is_remade_has_a_node_of_its_own(live: Live) -> None:
    """A finding: it took over labels and taints of the VM before it. Here with the right that the control plane's
    script gives, with the limits that kubeadm's API server sets, and with a node's own certificate."""
    stale = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "remade", "labels": {"of": "the-first"}}}
    made = live.control_plane.made
    made.say("stale.yaml", yaml.safe_dump({**stale, "spec": {"taints": [{"key": "old", "effect": "NoSchedule"}]}}))
    live.control_plane.kubectl("create", "--filename", str(made.folder / "stale.yaml"))
    secret = JoinSecret.model_validate(live.secrets.newest("join"))
    host = MachineType("host", vcpus=4, memory_gb=16)
    join(secret, Kubelet("remade", "uuid", "10.0.0.8", host, KUBERNETES_VERSION, {"of": "the-second"}, [], max_pods=64))
    node = json.loads(live.control_plane.kubectl("get", "node", "remade", "--output", "json"))
    assert node["metadata"]["labels"]["of"] == "the-second"
    assert "old" not in {taint["key"] for taint in node["spec"]["taints"]}


def test_a_cluster_whose_disk_is_lost_comes_back_from_its_backups(
    machine: MakeMachine, secrets: Secrets, tmp_path: Path
) -> None:
    """A finding: the authority and the key of secrets were on the data disk alone, so that no snapshot could bring a
    cluster back. The steps are those of docs/self-managed-operations.md. Copying etcd's files stands for
    `etcdutl snapshot restore`, which gives the same ones."""
    make_secrets(secrets)
    platform = platform_of(secrets, {"backups": True})
    given = {"tpu_api_address": "127.0.0.1", "tpu_backup_bucket": "backups"}
    lost = serving(machine_of(machine, platform, **given))
    with running(lost, tmp_path / "lost") as before:
        before.kubectl("create", "secret", "generic", "kept", "--from-literal=word=still-there")
        before.kubectl("create", "serviceaccount", "visitor")
        token = before.kubectl("create", "token", "visitor").strip()
        saved = command(lost, "snapshot")
        assert saved.code == 0, saved.output
    keys = base64.b64decode(secrets.newest_bytes("keys"))
    assert keys not in saved.output.encode()

    new = serving(machine_of(machine, platform, **given))
    assert ca_hash(new) != ca_hash(lost)
    (tmp_path / "keys.tar.gz").write_bytes(keys)
    etc = new.root / "etc/kubernetes"
    subprocess.run(["tar", "-xzf", tmp_path / "keys.tar.gz", "-C", etc], check=True)
    shutil.rmtree(new.root / "var/lib/etcd/member")
    shutil.copytree(lost.root / "var/lib/etcd/member", new.root / "var/lib/etcd/member")
    (new.root / "var/lib/tpu-boot/joined").unlink()
    new.say("blkid", 0)
    back = new.start_boot_unit()
    assert back.code == 0, back.output
    assert "the data disk holds a cluster: bringing it back" in back.output
    with running(new, tmp_path / "new") as after:
        assert ca_hash(new) == ca_hash(lost)
        shown(after).verify_directly_issued_by(certificate(lost, "ca"))
        found = after.kubectl("get", "secret", "kept", "--output", "jsonpath={.data.word}")
        assert base64.b64decode(found) == b"still-there"
        assert get(after, "/api", token).status_code == 200
