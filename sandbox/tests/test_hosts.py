"""Parts of real hosts that need no containers: the choice, image names, a chip's environment, GKE's TPU webhook."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from sandbox.hosts import cgroups, chips, choice, dra_plugin, images, tpu_webhook
from sandbox.hosts.choice import ChoiceError
from sandbox.hosts.messages import DRA, MESSAGES
from sandbox.kubernetes.assets import AssetError
from sandbox.kubernetes.dra import DRIVER
from sandbox.kubernetes.nodes import ACCELERATOR_LABEL, CHIPS_LABEL, TOPOLOGY_LABEL
from sandbox.kubernetes.pki import CertificateAuthority


def test_played_pods_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = choice.choose({"SANDBOX_PODS": "played"})
    assert not chosen.real
    assert "no container runs" in chosen.words


def test_real_pods_where_they_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "what_is_missing", lambda: "")
    assert choice.choose({}).hosts == choice.DEFAULT_HOSTS
    assert choice.choose({"SANDBOX_REAL_HOSTS": "5"}).hosts == 5


def test_without_root_pods_are_played_and_the_reason_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    chosen = choice.choose({})
    assert not chosen.real
    assert "root" in chosen.words


def test_a_missing_package_is_named_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("shutil.which", lambda name, path: None if name == "runc" else f"/bin/{name}")
    monkeypatch.setattr(choice, "cni_folder", lambda: None)
    assert choice.what_is_missing().endswith("`apt-get install containernetworking-plugins runc`")
    with pytest.raises(ChoiceError, match="apt-get install"):
        choice.choose({"SANDBOX_PODS": "real"})


def test_what_the_machine_refuses_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container without the right to mount; without root the same words come from the same cause."""
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("shutil.which", lambda name, path: f"/bin/{name}")
    monkeypatch.setattr(choice, "cni_folder", lambda: Path("/opt/cni/bin"))
    monkeypatch.setattr(choice, "_PROBE", "mount -t nothing-of-that-name none /mnt")
    assert "nothing-of-that-name" in choice.what_is_missing()


def test_more_hosts_than_the_kernel_lets_watch_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "limit").write_text("128\n")
    monkeypatch.setattr(choice, "WATCHES", tmp_path / "limit")
    monkeypatch.setattr(choice, "what_is_missing", lambda: "")
    assert choice.choose({"SANDBOX_REAL_HOSTS": "12"}).real
    with pytest.raises(ChoiceError, match=r"sysctl -w fs\.inotify\.max_user_instances=137"):
        choice.choose({"SANDBOX_REAL_HOSTS": "13", "SANDBOX_PODS": "real"})


@pytest.mark.parametrize(
    "variables", [{"SANDBOX_PODS": "maybe"}, {"SANDBOX_REAL_HOSTS": "0"}, {"SANDBOX_REAL_HOSTS": "x"}]
)
def test_a_wrong_choice_is_refused(variables: dict[str, str]) -> None:
    with pytest.raises(ChoiceError, match=next(iter(variables))):
        choice.choose(variables)


def test_a_host_knows_the_images_of_the_program_and_its_own() -> None:
    names = images.names_of({"us-docker.pkg.dev/a/tpu@sha256:00": images.JAX, "mine:1": images.PYTHON})
    assert names["us-docker.pkg.dev/a/tpu@sha256:00"] == images.JAX
    assert names["docker.io/library/mine:1"] == images.PYTHON
    assert names["docker.io/sandbox/jax:1"] == images.JAX
    with pytest.raises(AssetError, match="sandbox/nothing:1 do not exist"):
        images.names_of({"mine:1": "sandbox/nothing:1"})


def labels(accelerator: str, topology: str, count: int) -> dict[str, str]:
    return {ACCELERATOR_LABEL: accelerator, TOPOLOGY_LABEL: topology, CHIPS_LABEL: str(count)}


def test_a_whole_slice_on_one_host_is_its_own_first_worker() -> None:
    """The first example of the driver's documentation: v6e 2x4 on a host with eight chips."""
    found = chips.environment(labels("tpu-v6e-slice", "2x4", 8))
    assert (found["TPU_HOST_BOUNDS"], found["TPU_CHIPS_PER_HOST_BOUNDS"]) == ("1,1,1", "2,4,1")
    assert (found["TPU_WORKER_ID"], found["TPU_WORKER_HOSTNAMES"]) == ("0", "localhost")


def test_a_part_of_a_slice_does_not_say_which_worker_it_is() -> None:
    """The second example: v6e 4x4 on hosts with four chips."""
    found = chips.environment(labels("tpu-v6e-slice", "4x4", 4))
    assert (found["TPU_HOST_BOUNDS"], found["TPU_CHIPS_PER_HOST_BOUNDS"]) == ("2,2,1", "2,2,1")
    assert not {"TPU_WORKER_ID", "TPU_WORKER_HOSTNAMES"} & found.keys()


class OneClaim:
    """An API server with one claim, whose devices are these."""

    def __init__(self, devices: list[str]) -> None:
        results = [{"driver": DRIVER, "device": each, "pool": "node", "request": "tpu"} for each in devices]
        self._claim = {"metadata": {"uid": "u-1"}, "status": {"allocation": {"devices": {"results": results}}}}

    def get(self, *_of_what: str) -> dict[str, Any]:
        return self._claim


def prepared(devices: list[str]) -> Any:
    """The answer for that claim on a host with four chips."""
    client: Any = OneClaim(devices)
    plugin = dra_plugin.DraPlugin(client, "node", "10.128.1.1", labels("tpu-v6e-slice", "2x4", 4), 4)
    types = MESSAGES[DRA]
    claim = types["Claim"](namespace="team", uid="u-1", name="c")
    return plugin.prepare(types["NodePrepareResourcesRequest"](claims=[claim])).claims["u-1"]


def test_a_whole_claim_is_prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dra_plugin, "CDI_FOLDER", tmp_path)
    answer = prepared(["0", "1", "2", "3"])
    assert [each.device_name for each in answer.devices] == ["0", "1", "2", "3"]
    assert list(answer.devices[2].cdi_device_ids) == [
        "k8s.tpu.google.com/tpu=u-1-common",
        "k8s.tpu.google.com/tpu=u-1-2",
    ]
    [file] = tmp_path.iterdir()
    devices = {each["name"]: each["containerEdits"] for each in json.loads(file.read_text())["devices"]}
    assert "TPU_TOPOLOGY=2x4" in devices["u-1-common"]["env"]
    assert [each["path"] for each in devices["u-1-2"]["deviceNodes"]] == ["/dev/vfio/2"]


def test_a_claim_for_a_part_of_the_chips_is_refused_on_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dra_plugin, "CDI_FOLDER", tmp_path)
    assert "claim requests partial tpu devices (1)" in prepared(["0"]).error
    assert not list(tmp_path.iterdir())


JOB = {"metadata": {"name": "train-slice-1"}, "spec": {"parallelism": 2, "completionMode": "Indexed"}}


def pod(limits: dict[str, str], **set_by_itself: str) -> dict[str, Any]:
    jobset = "jobset.sigs.k8s.io"
    return {
        "metadata": {
            "labels": {
                f"{jobset}/jobset-name": "train",
                f"{jobset}/replicatedjob-name": "slice",
                f"{jobset}/replicatedjob-replicas": "2",
            }
        },
        "spec": {
            "subdomain": "train",
            "containers": [
                {
                    "name": "c",
                    "resources": {"limits": limits},
                    "env": [{"name": name, "value": value} for name, value in set_by_itself.items()],
                }
            ],
        },
    }


def test_the_webhook_tells_workers_of_each_other() -> None:
    [change] = tpu_webhook.changes(pod({"google.com/tpu": "4"}), JOB)
    values = {each["name"]: each.get("value") for each in change["value"]}
    assert values["TPU_WORKER_HOSTNAMES"] == "train-slice-1-0.train,train-slice-1-1.train"
    assert values["MEGASCALE_COORDINATOR_ADDRESS"] == "train-slice-0-0.train"
    assert {"TPU_WORKER_ID", "MEGASCALE_NUM_SLICES", "MEGASCALE_SLICE_ID"} <= values.keys()


def test_the_webhook_leaves_alone_what_is_set_and_pods_without_chips() -> None:
    [change] = tpu_webhook.changes(pod({"google.com/tpu": "4"}, TPU_WORKER_ID="7"), JOB)
    assert [each["value"] for each in change["value"] if each["name"] == "TPU_WORKER_ID"] == ["7"]
    assert tpu_webhook.changes(pod({"cpu": "1"}), JOB) == []
    assert tpu_webhook.changes(pod({"google.com/tpu": "4"}), None) == []


def test_hosts_that_start_at_once_share_one_certificate(tmp_path: Path) -> None:
    """A finding: a key of one thread beside the certificate of another."""
    authority = CertificateAuthority(tmp_path / "pki")
    with ThreadPoolExecutor(4) as pool:
        issued = list(pool.map(lambda _: authority.issue("system-kube-proxy", [], user="system:kube-proxy"), range(4)))
    [pair] = set(issued)
    certificate = x509.load_pem_x509_certificate(pair.certificate.read_bytes())
    key = serialization.load_pem_private_key(pair.key.read_bytes(), password=None)
    assert certificate.public_key() == key.public_key()


def test_cgroups_of_version_2_hand_their_controllers_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of a hierarchy, in a folder: they stand for the kernel's, which no test can mount beside version 1."""
    own = tmp_path / cgroups.name_of(Path("/run/h1"))
    own.mkdir(parents=True)
    for each in (tmp_path, own):
        (each / "cgroup.controllers").write_text("cpu memory\n")
    monkeypatch.setattr(cgroups, "hierarchies", lambda: [tmp_path])
    cgroups.make(Path("/run/h1"))
    assert (own / "cgroup.subtree_control").read_text() == "+cpu +memory"
    assert cgroups.refusal() == ""


def test_cgroups_that_nobody_can_make_are_an_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container whose cgroups can only be read."""
    monkeypatch.setattr(cgroups, "hierarchies", lambda: [tmp_path / "read-only"])
    assert "read-only" in cgroups.refusal()


def test_a_chip_of_tpu7x_is_two_devices() -> None:
    found = chips.environment(labels("tpu7x", "2x2x1", 4))
    assert found["XLA_FLAGS"] == "--xla_force_host_platform_device_count=8"
