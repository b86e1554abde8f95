"""The boot script of a control-plane VM and the commands it installs, run dry."""

from __future__ import annotations

import base64
import json
import re
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml

from sandbox.toolchain.kubernetes_binaries import KUBERNETES_VERSION
from tests.bootstrap.conftest import MakeMachine, NewSecrets
from tests.bootstrap.control_planes import (
    COMMAND,
    api_name,
    ca_hash,
    certificate,
    command,
    documents,
    make_control_plane,
    make_secrets,
    served_names,
)
from tests.bootstrap.google import STRANGER, Secrets
from tests.bootstrap.machine import Boot, Machine

pytestmark = pytest.mark.sandbox

RFC3339 = re.compile(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ")


@pytest.fixture
def platform(secrets: Secrets) -> Secrets:
    return make_secrets(secrets)


@pytest.fixture(scope="module")
def first(machine: MakeMachine, new_secrets: NewSecrets) -> tuple[Machine, Boot]:
    """A control plane of one VM after its first boot, for tests that only look."""
    secrets = make_secrets(new_secrets())
    made = make_control_plane(machine, secrets, tpu_backup_bucket="backups", tpu_keys_secret=secrets.name("keys"))
    return made, made.boot()


def test_the_cluster_is_made_as_configured(first: tuple[Machine, Boot]) -> None:
    made, booted = first
    assert booted.code == 0, booted.output
    (config,) = made.kubeadm_configs("init")
    found = documents(made, config)
    assert found["InitConfiguration"] == {
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "InitConfiguration",
        "bootstrapTokens": [{"ttl": "15m0s"}],
        "localAPIEndpoint": {"advertiseAddress": "10.0.0.7", "bindPort": 6443},
        "nodeRegistration": {
            "name": made.vm.record["name"],
            "criSocket": "unix:///run/containerd/containerd.sock",
            "kubeletExtraArgs": [{"name": "cloud-provider", "value": "external"}],
        },
        "patches": {"directory": "/etc/tpu-boot/patches"},
    }
    cluster = found["ClusterConfiguration"]
    assert cluster["controlPlaneEndpoint"] == f"{api_name(made)}:6443"
    assert cluster["kubernetesVersion"] == f"v{KUBERNETES_VERSION}"
    assert cluster["networking"] == {"podSubnet": "10.4.0.0/14", "serviceSubnet": "10.0.32.0/20"}
    assert cluster["apiServer"]["certSANs"] == ["10.0.0.5", api_name(made)]
    arguments = {arg["name"]: arg["value"] for arg in cluster["controllerManager"]["extraArgs"]}
    assert arguments == {"allocate-node-cidrs": "false", "cloud-provider": "external", "profiling": "false"}
    assert f"10.0.0.7 {api_name(made)}\n" in made.read("/etc/hosts")


def test_a_public_address_is_for_people_and_the_internal_one_for_nodes(machine: MakeMachine, platform: Secrets) -> None:
    made = make_control_plane(machine, platform, tpu_public_address="203.0.113.9")
    made.boot()
    server = documents(made, made.kubeadm_configs("init")[0])["ClusterConfiguration"]["apiServer"]
    assert server["certSANs"] == ["10.0.0.5", api_name(made), "203.0.113.9"]
    assert command(made, "publish").code == 0
    assert platform.newest("endpoint")["server"] == "https://203.0.113.9:6443"
    assert platform.newest("join")["apiServer"] == "10.0.0.5:6443"


def test_the_api_server_finds_every_file_it_is_told_of(first: tuple[Machine, Boot]) -> None:
    made, _ = first
    server = documents(made, made.kubeadm_configs("init")[0])["ClusterConfiguration"]["apiServer"]
    mounted = {volume["mountPath"] for volume in server["extraVolumes"]}
    named = {arg["name"]: arg["value"] for arg in server["extraArgs"] if arg["value"].startswith("/")}
    for name, path in named.items():
        assert any(path.startswith(f"{mount}/") for mount in mounted), name
        assert name == "audit-log-path" or made.exists(path), name
    anonymous = yaml.safe_load(made.read(named["authentication-config"]))["anonymous"]
    assert {condition["path"] for condition in anonymous["conditions"]} == {
        *("/healthz", "/livez", "/readyz", "/api/v1/namespaces/kube-public/configmaps/cluster-info")
    }
    assert yaml.safe_load(made.read(named["audit-policy-file"]))["rules"] == [{"level": "Metadata"}]


def test_secrets_are_encrypted_with_a_key_of_the_disks_own(first: tuple[Machine, Boot]) -> None:
    made, booted = first
    path = "/etc/kubernetes/api-server/encryption.yaml"
    (rule,) = yaml.safe_load(made.read(path))["resources"]
    assert rule["resources"] == ["secrets"]
    key = rule["providers"][0]["secretbox"]["keys"][0]["secret"]
    assert len(base64.b64decode(key)) == 32
    assert key not in booted.output + str(booted.calls)
    assert (made.root / path.lstrip("/")).stat().st_mode & 0o777 == 0o600
    assert made.exists("/var/lib/tpu-platform/kubernetes/api-server/encryption.yaml")


def test_etcd_and_the_certificates_lie_on_the_data_disk(first: tuple[Machine, Boot]) -> None:
    made, booted = first
    assert booted.of("mkfs.ext4") == [["mkfs.ext4", "-q", "-m", "0", "/dev/disk/by-id/google-data"]]
    assert made.exists("/var/lib/tpu-platform/etcd/member/snap/db")
    assert made.exists("/var/lib/tpu-platform/kubernetes/pki/ca.key")
    mounts = [line.split()[:4] for line in made.read("/etc/fstab").splitlines()[1:]]
    assert [mount[1] for mount in mounts] == ["/var/lib/tpu-platform", "/var/lib/etcd", "/etc/kubernetes"]
    assert all("nofail" in mount[3] for mount in mounts)  # without its disk the VM still boots, and says so
    drop_in = made.read("/etc/systemd/system/kubelet.service.d/20-data-disk.conf")
    assert "RequiresMountsFor=/var/lib/etcd /etc/kubernetes" in drop_in


def test_timers_publish_and_save(first: tuple[Machine, Boot]) -> None:
    made, booted = first
    assert [
        "systemctl",
        "enable",
        "--now",
        "tpu-renew.timer",
        "tpu-publish.timer",
        "tpu-snapshot.timer",
    ] in booted.calls
    assert "OnCalendar=*:0/30" in made.read("/etc/systemd/system/tpu-publish.timer")
    assert f"ExecStart={COMMAND} publish\n" in made.read("/etc/systemd/system/tpu-publish.service")
    assert "OnCalendar=hourly" in made.read("/etc/systemd/system/tpu-snapshot.timer")
    (initialised,) = booted.of("kubeadm", "init")
    assert {"--skip-token-print", "--skip-certificate-key-print"} <= set(initialised)


@dataclass(frozen=True)
class Published:
    """A control plane that published once; what the secrets held then, and what the run printed."""

    made: Machine
    secrets: Secrets
    join: dict[str, Any]
    once: Boot


@pytest.fixture(scope="module")
def published(machine: MakeMachine, new_secrets: NewSecrets) -> Published:
    secrets = make_secrets(new_secrets())
    made = make_control_plane(machine, secrets)
    made.boot()
    once = command(made, "publish")
    assert once.code == 0, once.output
    return Published(made, secrets, secrets.newest("join"), once)


def test_nodes_find_how_to_join(published: Published) -> None:
    join = dict(published.join)
    assert RFC3339.fullmatch(join.pop("expires"))
    assert re.fullmatch(r"[a-z0-9]{6}\.[a-z0-9]{16}", join.pop("token"))
    authority = ca_hash(published.made)
    assert join == {"apiServer": "10.0.0.5:6443", "apiName": api_name(published.made), "caCertHash": authority}


def test_the_deployer_finds_the_server_and_a_token(published: Published) -> None:
    assert published.secrets.newest("access") == {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": "d3pl0yer-t0ken", "expirationTimestamp": "2031-01-01T00:00:00Z"},
    }
    endpoint = published.secrets.newest("endpoint")
    assert endpoint["server"] == "https://10.0.0.5:6443"
    assert base64.b64decode(endpoint["ca"]).decode() == published.made.read("/etc/kubernetes/pki/ca.crt")
    assert json.loads(base64.b64decode(endpoint["jwks"])) == {"keys": []}
    account, binding = yaml.safe_load_all((published.made.folder / "applied.yaml").read_text())
    assert account["metadata"] == {"name": "tpu-platform-deployer", "namespace": "kube-system"}
    assert binding["roleRef"]["name"] == "cluster-admin"


def test_newer_versions_replace_older_ones(published: Published) -> None:
    """But the endpoint, which does not change: until somebody takes it away."""
    secrets = published.secrets
    secrets.cloud.ok("POST", f"/sm/v1/{secrets.name('endpoint')}/versions/1:destroy", {})
    again = command(published.made, "publish")
    assert again.code == 0, again.output
    assert secrets.states("endpoint") == ["DESTROYED", "ENABLED"]
    assert command(published.made, "publish").code == 0
    assert secrets.states("endpoint") == ["DESTROYED", "ENABLED"]
    assert secrets.states("join") == secrets.states("access") == ["DESTROYED", "DESTROYED", "ENABLED"]
    newest = secrets.newest("join")["token"]
    assert newest != published.join["token"]
    printed = published.once.output + again.output + str(published.once.calls + again.calls)
    for secret in (newest, published.join["token"], "d3pl0yer-t0ken", published.made.vm.token):
        assert secret not in printed + published.made.disk_text()


def test_an_account_without_grants_cannot_publish(machine: MakeMachine, platform: Secrets) -> None:
    made = make_control_plane(machine, platform, account=STRANGER)
    made.boot()
    refused = command(made, "publish")
    assert refused.code != 0  # the unit is started again by systemd
    assert "403" in refused.output
    assert platform.states("join") == []


def test_a_new_vm_brings_the_cluster_of_its_disk_back(machine: MakeMachine, platform: Secrets) -> None:
    old = make_control_plane(machine, platform)
    old.boot()
    pki = "/etc/kubernetes/pki"
    cluster = [
        f"{pki}/{name}" for name in ("ca.crt", "ca.key", "etcd/ca.key", "sa.key", "sa.pub", "front-proxy-ca.key")
    ]
    cluster += ["/etc/kubernetes/api-server/encryption.yaml", "/var/lib/etcd/member/snap/db"]
    of_the_vm = [f"{pki}/apiserver.crt", f"{pki}/etcd/server.crt", "/etc/kubernetes/kubelet.conf"]
    before = {path: old.read(path) for path in [*cluster, *of_the_vm]}
    new = make_control_plane(machine, platform, replaces=old)
    new.say("fail-init", 1)
    booted = new.boot()
    assert booted.code == 0, booted.output
    assert booted.of("mkfs.ext4") == []
    assert booted.of("kubeadm", "reset") == []
    assert len(booted.of("kubeadm", "init")) == 2
    assert all("--ignore-preflight-errors=DirAvailable--var-lib-etcd" in call for call in booted.of("kubeadm", "init"))
    assert {path for path in before if new.read(path) == before[path]} == set(cluster)
    authorities = {"apiserver": "ca", "etcd/server": "etcd/ca", "front-proxy-client": "front-proxy-ca"}
    for name, authority in authorities.items():
        certificate(new, name).verify_directly_issued_by(certificate(new, authority))
    assert {new.vm.record["name"]} == served_names(new, "apiserver") & {old.vm.record["name"], new.vm.record["name"]}


@pytest.mark.parametrize("answer", [8, 4])
def test_a_disk_that_cannot_be_told_is_not_formatted(machine: MakeMachine, platform: Secrets, answer: int) -> None:
    made = make_control_plane(machine, platform)
    made.say("blkid", answer)
    refused = made.boot()
    assert refused.code == 1
    assert f"cannot tell what is on /dev/disk/by-id/google-data (blkid: {answer})" in refused.output
    assert refused.of("mkfs.ext4") == []


def test_a_failed_init_is_cleaned_up_and_tried_again(machine: MakeMachine, platform: Secrets) -> None:
    made = make_control_plane(machine, platform)
    made.say("fail-init", 1)
    booted = made.boot()
    assert booted.code == 0
    assert [call[1] for call in booted.of("kubeadm")] == ["init", "reset", "init"]


def test_a_later_boot_changes_no_cluster(machine: MakeMachine, platform: Secrets) -> None:
    made = make_control_plane(machine, platform)
    made.boot()
    again = made.boot()
    assert again.code == 0
    assert again.of("systemctl", "enable", "--now", "tpu-metadata-guard.service")
    assert again.of(
        "systemctl", "enable", "--now", "tpu-renew.timer", "tpu-publish.timer"
    )  # and no snapshots: there is no bucket
    assert not made.exists("/etc/systemd/system/tpu-snapshot.timer")
    assert [call for call in again.calls if call[0] in ("kubeadm", "apt-get", "mount", "mkfs.ext4")] == []


def test_replicas_join_through_the_first_one(machine: MakeMachine, platform: Secrets) -> None:
    one = make_control_plane(machine, platform, replicas=3)
    one.boot()
    one.say("replicas", 1)
    second = make_control_plane(machine, platform, replica=1, replicas=3)
    second.say("pods", "kube-proxy-pod")
    outputs: list[Boot] = []
    second.vm.on_pause = lambda number: outputs.append(command(one, "publish")) if number == 2 else None
    booted = second.boot()
    assert booted.code == 0, booted.output
    assert outputs[0].code == 0, outputs[0].output
    (config,) = second.kubeadm_configs("join")
    assert config.stat().st_mode & 0o777 == 0o600
    joined = documents(second, config)["JoinConfiguration"]
    peers, (uploaded,) = platform.newest("peers"), one.kubeadm_configs("upload-certs")
    assert joined["discovery"]["bootstrapToken"] == {
        "token": platform.newest("join")["token"],
        "apiServerEndpoint": "10.0.0.7:6443",
        "caCertHashes": [ca_hash(one)],
    }
    assert joined["controlPlane"] == {
        "certificateKey": peers["certificateKey"],
        "localAPIEndpoint": {"advertiseAddress": "10.0.0.7", "bindPort": 6443},
    }
    assert documents(one, uploaded)["InitConfiguration"]["certificateKey"] == peers["certificateKey"]
    encryption = "/etc/kubernetes/api-server/encryption.yaml"
    assert second.read(encryption) == one.read(encryption)
    # until it serves itself the name led to the first replica
    assert second.read("/etc/hosts").endswith(f"\n10.0.0.7 {api_name(one)}\n")
    assert second.read("/etc/hosts").count(api_name(one)) == 1
    # one publisher only, but certificates have all of them, which are renewed on different days
    assert booted.of("systemctl", "enable") == [
        *([["systemctl", "enable", "containerd", "kubelet"]]),
        ["systemctl", "enable", "--now", "tpu-metadata-guard.service"],
        ["systemctl", "enable", "--now", "tpu-renew.timer"],
    ]
    days = [made.read("/etc/systemd/system/tpu-renew.timer") for made in (one, second)]
    assert ["OnCalendar=*-*-1 03:00" in days[0], "OnCalendar=*-*-8 03:00" in days[1]] == [True, True]
    # kube-proxy copied /etc/hosts when it started: a finding was that it went on asking the first replica for ever
    assert booted.of("crictl")[-1][-3:] == ["rmp", "--force", "kube-proxy-pod"]
    printed = booted.output + outputs[0].output + str(booted.calls + outputs[0].calls)
    for secret in (peers["certificateKey"], peers["encryptionKey"], peers["token"]):
        assert secret not in printed


def test_what_makes_a_control_plane_is_withdrawn_once_all_are_there(machine: MakeMachine, platform: Secrets) -> None:
    one = make_control_plane(machine, platform, replicas=3)
    one.boot()
    for ready, states in ((1, ["ENABLED"]), (2, ["DESTROYED", "ENABLED"]), (3, ["DESTROYED", "DESTROYED"])):
        one.say("replicas", ready)
        published = command(one, "publish")
        assert published.code == 0
        assert "cannot destroy" not in published.output
        assert platform.states("peers") == states
    assert platform.states("join") == ["DESTROYED", "DESTROYED", "ENABLED"]


def test_snapshots_go_to_the_bucket_and_leave_the_disk(first: tuple[Machine, Boot]) -> None:
    made, _ = first
    assert command(made, "snapshot").code == 0  # the one before puts the keys away
    made.vm.uploads.clear()
    saved = command(made, "snapshot")
    assert "put the keys" not in saved.output
    assert saved.code == 0, saved.output
    ((name, content),) = made.vm.uploads.items()
    cluster = made.vm.record["attributes"]["tpu-cluster-name"]
    assert re.fullmatch(rf"backups/etcd/{cluster}/20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ\.db", name)
    assert content == b"a snapshot"
    assert not made.exists("/var/lib/etcd/snapshot.db")
    assert made.vm.token not in str(saved.calls) + saved.output


def test_a_wrong_command_is_named(first: tuple[Machine, Boot]) -> None:
    refused = command(first[0], "publsh")
    assert refused.code == 1
    assert "unknown command publsh; write publish, snapshot or renew" in refused.output


def test_certificates_are_renewed_and_programs_started_anew(machine: MakeMachine, platform: Secrets) -> None:
    """A finding: kubeadm's certificates end after a year, and with them the cluster. Tried with running programs in
    test_running.py."""
    made = make_control_plane(machine, platform)
    made.say("validity", "48h")
    made.boot()
    names = ("apiserver", "apiserver-kubelet-client", "apiserver-etcd-client", "etcd/server", "etcd/peer")
    names += ("etcd/healthcheck-client", "front-proxy-client")
    short = {name: certificate(made, name) for name in names}
    assert max(found.not_valid_after_utc for found in short.values()) < datetime.now(UTC) + timedelta(hours=49)
    authority, admin = certificate(made, "ca"), made.read("/etc/kubernetes/admin.conf")
    assert authority.not_valid_after_utc > datetime.now(UTC) + timedelta(days=3640)
    made.say("validity", "8760h")
    renewed = command(made, "renew")
    assert renewed.code == 0, renewed.output
    for name in names:
        assert certificate(made, name).not_valid_after_utc > datetime.now(UTC) + timedelta(days=360), name
    assert certificate(made, "ca") == authority
    assert made.read("/etc/kubernetes/admin.conf") != admin
    stopped = [call for call in renewed.of("crictl") if "stop" in call]
    assert len(stopped) == 4
    asked = [call[call.index("--name") + 1] for call in renewed.of("crictl") if "ps" in call]
    assert asked == ["^etcd$", "^kube-apiserver$", "^kube-controller-manager$", "^kube-scheduler$"]
    timer = made.read("/etc/systemd/system/tpu-renew.timer")
    # A month; a machine that was off makes it good, at another time than those that were off with it.
    assert "OnCalendar=*-*-1 03:00\nPersistent=true\nRandomizedDelaySec=6h\n" in timer
    again = command(made, "renew")
    assert again.code == 0, again.output
    assert again.of("kubeadm") == again.of("crictl") == []
    (made.root / "var/lib/tpu-boot/renewing").touch()  # a run that did not end
    assert len([call for call in command(made, "renew").of("crictl") if "stop" in call]) == 4
    assert not made.exists("/var/lib/tpu-boot/renewing")


def test_a_cluster_in_trouble_is_not_restarted_for_its_certificates(machine: MakeMachine, platform: Secrets) -> None:
    """A finding: a renewal that failed was tried again every 11 minutes, and restarted etcd and the API server each
    time. Where the certificates themselves are the trouble, they are renewed all the same."""
    made = make_control_plane(machine, platform)
    made.say("validity", "48h")
    made.boot()
    made.say("unready", "")
    before = certificate(made, "apiserver")
    refused = command(made, "renew")
    assert refused.code == 1
    assert "the API server is not ready: no certificate is renewed" in refused.output
    assert refused.of("kubeadm") == refused.of("crictl") == []
    assert certificate(made, "apiserver") == before
    assert "Restart=no\n" in made.read("/etc/systemd/system/tpu-renew.service")
    assert "Restart=on-failure\n" in made.read("/etc/systemd/system/tpu-publish.service")


def test_certificates_that_have_ended_are_renewed_at_once(machine: MakeMachine, platform: Secrets) -> None:
    """With them the API server answers nobody, so it is not asked before."""
    made = make_control_plane(machine, platform)
    made.say("validity", "1s")
    made.boot()
    left = certificate(made, "apiserver").not_valid_after_utc - datetime.now(UTC)
    assert left < timedelta(seconds=2)
    time.sleep(max(left.total_seconds(), 0))
    made.say("validity", "8760h")
    renewed = command(made, "renew")
    assert renewed.code == 0, renewed.output
    called = [call[0] for call in renewed.calls if call[0] in ("kubectl", "kubeadm")]
    assert called == ["kubeadm", "kubectl"]
    assert certificate(made, "apiserver").not_valid_after_utc > datetime.now(UTC) + timedelta(days=360)


def test_a_secret_that_takes_no_keys_does_not_stop_snapshots(machine: MakeMachine, platform: Secrets) -> None:
    """A finding: keys went first, and where their secret failed no snapshot was taken any more."""
    made = make_control_plane(machine, platform, tpu_backup_bucket="backups", tpu_keys_secret=platform.name("none"))
    made.boot()
    failed = command(made, "snapshot")
    assert failed.code == 1
    assert "the backup is not complete" in failed.output
    assert list(made.vm.uploads.values()) == [b"a snapshot"]
    assert not made.exists("/var/lib/tpu-boot/kept-keys")
    assert "Restart=no\n" in made.read("/etc/systemd/system/tpu-snapshot.service")


def test_a_snapshot_that_fails_does_not_stop_keys(machine: MakeMachine, platform: Secrets) -> None:
    made = make_control_plane(machine, platform, tpu_backup_bucket="", tpu_keys_secret=platform.name("keys"))
    made.boot()
    failed = command(made, "snapshot")
    assert failed.code == 1
    assert "this VM has no metadata attributes.tpu-backup-bucket" in failed.output
    assert platform.states("keys") == ["ENABLED"]
