"""Slices that bring their own instance template: what it must say, and what the program makes of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pulumi
import pytest

from components.compute.own_template import mismatches
from plan import hosts
from plan.hosts import HostTemplate
from tests.graph.emulated import recorded
from tests.graph.recording import Update, inputs_of, named, record_main
from tests.platforms import ZONES, load

Json = dict[str, Any]
NAME = "projects/my-project/global/instanceTemplates/own"
EMAIL = "own@my-project.iam.gserviceaccount.com"
SLICE = {
    "machine_type": "ct6e-standard-4t",
    "topology": "4x4",
    "capacity": {"model": "reservation", "name": "first"},
    "instance_template": NAME,
}
PLATFORM: Json = {"zone": ZONES["v6e"], "cluster": {"kind": "self-managed"}, "slices": {"train": SLICE}}
TEMPLATE = "gcp:compute/instanceTemplate:InstanceTemplate"


def expected(**cluster: Any) -> tuple[HostTemplate, dict[str, str]]:
    """What the slice's own template would say, and what its boot script reads besides."""
    platform = load({"train": SLICE}, cluster={**PLATFORM["cluster"], **cluster})
    return hosts.slice_groups(platform, platform.slice_plans[0])[0].template, hosts.boot_metadata(platform)


def sound(**changed: Any) -> Json:
    """A template as the provider shows it, in which all is well."""
    template, joins = expected()
    return {
        "selfLinkUnique": f"https://compute/{NAME}?uniqueId=1",
        "selfLink": f"https://compute/{NAME}",
        "machineType": "ct6e-standard-4t",
        "schedulings": [{"provisioningModel": "RESERVATION_BOUND"}],
        "reservationAffinities": [
            {"type": "SPECIFIC_RESERVATION", "specificReservations": [{"key": "k", "values": ["first"]}]}
        ],
        "networkInterfaces": [{"nicType": "GVNIC", "accessConfigs": []}],
        "serviceAccounts": [{"email": EMAIL, "scopes": ["cloud-platform"]}],
        "metadata": {**template.metadata(), **joins, "startup-script": "#!/usr/bin/env bash"},
        **changed,
    }


def with_metadata(**changed: str | None) -> Json:
    """The same with other metadata; None takes a key away. Hyphens are written as underscores."""
    metadata = {**sound()["metadata"], **{key.replace("_", "-"): value for key, value in changed.items()}}
    return sound(metadata={key: value for key, value in metadata.items() if value is not None})


@pytest.fixture
def own() -> Iterator[Json]:
    """The template, in Google's hands for the time of a test."""
    template = sound()
    Update.TEMPLATES["own"] = template
    yield template
    del Update.TEMPLATES["own"]


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize("preview", [True, False])
def test_hosts_are_made_of_it(preview: bool) -> None:
    config = {"gcp:project": "my-project", "tpu-platform:platform": json.dumps(PLATFORM)}
    graph = record_main(config, preview=preview)
    (version,) = inputs_of(graph, "slices-train-0")["versions"]
    assert version["instanceTemplate"].endswith("?uniqueId=1"), "another template of that name is another slice"
    assert [request.name for request in graph.of_type(TEMPLATE).values()] == ["cpu-pools-template-system"]
    assert inputs_of(graph, "join-grants-template-own")["member"] == f"serviceAccount:{EMAIL}"
    assert EMAIL in inputs_of(graph, "network-internal")["targetServiceAccounts"]


@pytest.mark.usefixtures("own")
def test_hosts_of_it_come_after_all_they_need_to_join() -> None:
    graph = recorded(PLATFORM)
    group = graph.requests[named(graph, "slices-train-0")]
    needed = {graph.requests[urn].name for urn in group.dependencies if urn in graph.requests}
    assert {"network-nat", "join-grants-template-own", "control-plane-machine-0"} <= needed


def test_a_regional_template_is_looked_for_in_its_region(monkeypatch: pytest.MonkeyPatch, own: Json) -> None:
    del own["selfLinkUnique"]
    calls = []
    read = Update.read

    def recorded_read(self: Update, args: Any) -> Json:
        calls.append((args.token.rpartition(":")[2], args.args))
        return read(self, args)

    monkeypatch.setattr(Update, "read", recorded_read)
    name = "projects/my-project/regions/us-east5/instanceTemplates/own"
    recorded({**PLATFORM, "slices": {"train": {**SLICE, "instance_template": name}}})
    assert calls == [
        ("getRegionInstanceTemplate", {"project": "my-project", "region": "us-east5", "name": "own"}),
    ]


def test_one_that_will_not_do_stops_the_plan(own: Json) -> None:
    own |= {"machineType": "ct6e-standard-1t", "serviceAccounts": []}
    with pytest.raises(pulumi.RunError) as refusal:
        recorded(PLATFORM)
    assert str(refusal.value).splitlines() == [
        f"tpu-platform:platform.slices.train.instance_template: {NAME} does not fit this slice:",
        "  its machine type is ct6e-standard-1t, not ct6e-standard-4t",
        "  its hosts run as no account; give it a service account of their own",
    ]


def test_a_sound_one_has_no_mismatches() -> None:
    assert list(mismatches(sound(), *expected())) == []


LABELS = expected()[0].metadata()["kube-labels"]


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (sound(machineType="tpu7x-standard-4t"), "machine type is tpu7x-standard-4t, not ct6e-standard-4t"),
        (sound(schedulings=[]), "provisioning model is STANDARD, not RESERVATION_BOUND"),
        (sound(reservationAffinities=[]), r"reservation is not set, not \['first'\]"),
        (sound(networkInterfaces=[{"accessConfigs": [{"natIp": ""}]}]), "public address"),
        (sound(serviceAccounts=[{"email": "1-compute@developer.gserviceaccount.com"}]), "run as 1-compute@"),
        (with_metadata(kube_labels=None), f"kube-labels is not set, not {LABELS}"),
        (with_metadata(tpu_node_taints="a=b:NoSchedule"), "tpu-node-taints is a=b:NoSchedule"),
        (with_metadata(tpu_join_secret="projects/p/secrets/other"), "tpu-join-secret is projects/p/secrets/other"),
        (with_metadata(startup_script=None), "no startup-script"),
    ],
)
def test_each_mismatch_is_named(found: Mapping[str, Any], words: str) -> None:
    (mismatch,) = mismatches(found, *expected())
    assert re.search(words, mismatch)


def test_the_order_of_labels_says_nothing() -> None:
    turned = ",".join(reversed(LABELS.split(",")))
    assert turned != LABELS
    assert list(mismatches(with_metadata(kube_labels=turned), *expected())) == []


def test_images_that_join_by_themselves_need_the_plugins_labels_only() -> None:
    template, _ = expected()
    bare = sound(metadata={"kube-labels": LABELS})
    assert list(mismatches(bare, template, {})) == []
    assert list(mismatches(sound(metadata={}), template, {})) == [f"its metadata kube-labels is not set, not {LABELS}"]
