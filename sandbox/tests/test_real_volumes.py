"""Buckets in real containers: the FUSE driver's plugin over the kubelet's own interface, reads, writes, refusals."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sandbox.kubernetes.api import Object, is_true
from sandbox.kubernetes.fuse import DRIVER, ENABLED
from sandbox.tests.kubernetes_support import node_pool
from sandbox.tests.real_hosts import eventually, kubectl, nodes
from sandbox.tests.team_support import BUCKET, TEAM, WRITE, Site, claim, pod, site

pytestmark = [pytest.mark.sandbox, pytest.mark.real_pods]

ASKS = {ENABLED: "true"}
CLAIM: Object = {"persistentVolumeClaim": {"claimName": "data"}}
ON_TPU = {"nodeSelector": {"cloud.google.com/gke-nodepool": "tpu"}}


@pytest.fixture(scope="module")
def place() -> Iterator[Site]:
    with site([node_pool("tpu", "ct6e-standard-1t", 1)], hosts=1) as made:
        eventually("all Nodes Ready", lambda: all(is_true(each, "Ready") for each in nodes(made.cluster)))
        eventually("the driver is on", lambda: made.client.get("storage.k8s.io/v1", "CSIDriver", DRIVER))
        for each in claim():
            made.client.create(each)
        yield made


@pytest.fixture(autouse=True)
def granted(place: Site) -> None:
    place.grant_bucket(*WRITE)


def phase(place: Site, name: str) -> str:
    found = place.client.get("v1", "Pod", name, TEAM)
    return str(found["status"].get("phase")) if found else ""


def run(place: Site, name: str, code: str, volume: Object = CLAIM) -> None:
    """Runs Python in a pod that mounts a volume at /data."""
    command = {"command": ["python", "-c", code]}
    place.client.create(pod(name, volume, ASKS, container=command, **ON_TPU))


def test_the_kubelet_knows_the_driver(place: Site) -> None:
    [node] = nodes(place.cluster)
    name = node["metadata"]["name"]

    def drivers() -> list[Object]:
        found = place.client.get("storage.k8s.io/v1", "CSINode", name) or {}
        return found.get("spec", {}).get("drivers") or []

    [driver] = eventually("the driver is registered", drivers)
    assert (driver["name"], driver["nodeID"]) == (DRIVER, name)


def test_a_job_reads_and_writes_objects_as_files(place: Site) -> None:
    place.write("input/numbers.txt", "20 22")
    code = (
        "import os; numbers = open('/data/input/numbers.txt').read().split();"
        "os.makedirs('/data/step/100'); open('/data/step/100/sum', 'w').write(str(sum(map(int, numbers))));"
        "os.remove('/data/input/numbers.txt'); print(sorted(os.listdir('/data')))"
    )
    run(place, "worker", code)
    eventually("it ends", lambda: phase(place, "worker") == "Succeeded")
    assert kubectl(place.cluster, "logs", "worker", "-n", TEAM, "-c", "main").strip() == "['input', 'step']"
    eventually("the object is there", lambda: place.read("step/100/sum") == "42")
    eventually("the other is gone", lambda: place.read("input/numbers.txt") is None)


def test_what_somebody_else_writes_appears(place: Site) -> None:
    code = (
        "import os, time\nwhile not os.path.exists('/data/go'): time.sleep(0.1)\n"
        "open('/data/seen', 'w').write(open('/data/go').read())"
    )
    run(place, "waits", code)
    eventually("it runs", lambda: phase(place, "waits") == "Running")
    place.write("go", "now")
    eventually("it has seen it", lambda: place.read("seen") == "now")


def test_a_pod_that_is_deleted_while_it_runs_writes_its_last_file_and_goes(place: Site) -> None:
    code = (
        "import signal, sys, time\ndef end(*_): open('/data/last', 'w').write('42'); sys.exit()\n"
        "signal.signal(signal.SIGTERM, end); open('/data/began', 'w').write('now'); time.sleep(400)"
    )
    run(place, "deleted", code)
    eventually("it runs", lambda: place.read("began") == "now")
    running = place.client.get("v1", "Pod", "deleted", TEAM)
    assert running
    place.client.delete(running, grace_seconds=5)
    eventually("it is gone", lambda: place.client.get("v1", "Pod", "deleted", TEAM) is None)
    eventually("its last file is there", lambda: place.read("last") == "42")


def test_a_read_only_volume_takes_no_file(place: Site) -> None:
    place.grant_bucket("roles/storage.objectViewer", "roles/storage.legacyBucketReader")
    place.write("fixed", "text")
    attributes = {"bucketName": BUCKET, "mountOptions": "implicit-dirs"}
    volume: Object = {"csi": {"driver": DRIVER, "readOnly": True, "volumeAttributes": attributes}}
    code = (
        "print(open('/data/fixed').read())\ntry: open('/data/new', 'w')\nexcept OSError as error: print(error.strerror)"
    )
    run(place, "reader", code, volume)
    eventually("it ends", lambda: phase(place, "reader") == "Succeeded")
    said = kubectl(place.cluster, "logs", "reader", "-n", TEAM, "-c", "main").split("\n")
    assert said[:2] == ["text", "Read-only file system"]
    assert place.read("new") is None


def test_a_folder_of_a_bucket_can_be_mounted_alone(place: Site) -> None:
    place.write("models/a/weights", "w")
    attributes = {"bucketName": BUCKET, "mountOptions": "implicit-dirs,only-dir=models/a"}
    volume: Object = {"csi": {"driver": DRIVER, "volumeAttributes": attributes}}
    run(place, "folder", "import os; print(os.listdir('/data'))", volume)
    eventually("it ends", lambda: phase(place, "folder") == "Succeeded")
    assert kubectl(place.cluster, "logs", "folder", "-n", TEAM, "-c", "main").strip() == "['weights']"


REFUSED: dict[str, tuple[Object, dict[str, str], str]] = {
    "annotation": (CLAIM, {}, "FailedPrecondition desc = failed to find the sidecar container in Pod spec"),
    "grant": (
        {"csi": {"driver": DRIVER, "volumeAttributes": {"bucketName": "product-data"}}},
        ASKS,
        'PermissionDenied desc = failed to get GCS bucket "product-data": googleapi: Error 403: Caller does not have'
        " storage.objects.list access",
    ),
    "bucket": (
        {"csi": {"driver": DRIVER, "volumeAttributes": {"bucketName": "nowhere"}}},
        ASKS,
        'NotFound desc = failed to get GCS bucket "nowhere": storage: bucket doesn\'t exist',
    ),
}


@pytest.mark.parametrize("lacks", REFUSED)
def test_what_is_missing_is_in_the_kubelets_event(place: Site, lacks: str) -> None:
    volume, annotations, text = REFUSED[lacks]
    place.client.create(pod(f"no-{lacks}", volume, annotations, **ON_TPU))

    def failed() -> list[str]:
        return [each for each in place.events(f"no-{lacks}") if each.startswith("MountVolume.SetUp failed")]

    [event, *_] = eventually("the event", failed)
    assert f"rpc error: code = {text}" in event

    def states() -> list[Object]:
        """Of the containers; the kubelet may write them after the event."""
        status = (place.client.get("v1", "Pod", f"no-{lacks}", TEAM) or {"status": {}})["status"]
        return [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]

    reasons = {each["state"]["waiting"]["reason"] for each in eventually("its containers", states)}
    assert reasons <= {"PodInitializing", "ContainerCreating"}
