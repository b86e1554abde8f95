"""What follows from teams in the graph: who is granted what, in which order, and what outlives the platform."""

from __future__ import annotations

import json
from typing import Any

from platform_config.platform import PLATFORM_KEY
from sandbox.google.project_numbers import project_number
from tests.graph.conftest import recorded
from tests.graph.recording import (
    ROOT,
    GraphMonitor,
    inputs,
    inputs_of,
    named,
    reachable,
    record_main,
    short,
    stack_config,
)
from tests.platforms import SELF_MANAGED, raw

TEAM = ROOT / "Pulumi.team.yaml"
POOL = f"projects/{project_number('my-project')}/locations/global/workloadIdentityPools"
PODS = f"principalSet://iam.googleapis.com/{POOL}/my-project.svc.id.goog/namespace/research"
BUCKET_MEMBER = "gcp:storage/bucketIAMMember:BucketIAMMember"


def graph() -> GraphMonitor:
    return recorded(TEAM, preview=False)


def changed(**platform: Any) -> GraphMonitor:
    """The graph of the team stack with other settings."""
    config = stack_config(TEAM)
    return record_main({**config, PLATFORM_KEY: json.dumps(json.loads(config[PLATFORM_KEY]) | platform)})


def of(**platform: Any) -> GraphMonitor:
    """The graph of a small platform."""
    return record_main({"gcp:project": "my-project", PLATFORM_KEY: json.dumps(raw(**platform))})


def grants(monitor: GraphMonitor) -> set[tuple[str, str, str]]:
    """Bucket, role and member of each grant on a bucket."""
    rows = [inputs(request) for request in monitor.of_type(BUCKET_MEMBER).values()]
    found = {(row["bucket"], row["role"].removeprefix("roles/storage."), row["member"]) for row in rows}
    assert len(found) == len(rows), "two resources of one grant: the end of one would end the other"
    return found


def test_a_namespace_that_becomes_a_team_stays_the_same_resource() -> None:
    before = of(queues={"q": {"namespaces": ["a"], "slices": {"train": 1}}}, namespaces=["a"])
    after = of(queues={"q": {"namespaces": ["a"], "slices": {"train": 1}}}, teams={"a": {}})
    urn = named(before, "namespaces-a")
    assert inputs(before.requests[urn]) == inputs(after.requests[urn])
    assert set(before.requests) <= set(after.requests)


def test_teams_come_in_place_of_the_namespace_that_is_there_by_default() -> None:
    assert "tpu-workloads" in {inputs(each)["metadata"]["name"] for each in namespaces(of())}
    assert {inputs(each)["metadata"]["name"] for each in namespaces(of(teams={"a": {}}))} == {"a"}


def namespaces(monitor: GraphMonitor) -> list[Any]:
    rows = monitor.of_type("kubernetes:core/v1:Namespace").values()
    return [row for row in rows if row.name.startswith("namespaces-")]


def test_pods_and_members_get_rights_on_their_own_buckets_only() -> None:
    made = "my-project_tpu-team_research_checkpoints"
    assert {row for row in grants(graph()) if row[2] in (PODS, "user:eva@example.com")} == {
        (bucket, role, member)
        for member in (PODS, "user:eva@example.com")
        for bucket, role in (
            (made, "objectUser"),
            (made, "legacyBucketReader"),
            ("acme-c4", "objectViewer"),
            ("acme-c4", "legacyBucketReader"),
        )
    }


def test_members_and_buckets_that_teams_share_are_granted_once() -> None:
    store = {"members": ["user:eva@example.com"], "storage": {"d": {"bucket": "acme"}}}
    monitor = of(teams={"a": store, "b": store})
    assert len(grants(monitor)) == 2 * 3, "two roles each for the member and for the pods of both teams"
    people = [inputs(each) for each in monitor.of_type("gcp:projects/iAMMember:IAMMember").values()]
    eva = [row["role"] for row in people if row["member"] == "user:eva@example.com"]
    assert eva == ["roles/container.clusterViewer"]


def test_grants_to_pods_wait_for_the_cluster_and_buckets_do_not() -> None:
    monitor = graph()
    cluster = named(monitor, "cluster-gke")
    for urn, request in monitor.of_type(BUCKET_MEMBER).items():
        of_pods = str(inputs(request)["member"]).startswith("principalSet://")
        assert (cluster in reachable(monitor, urn)) is of_pods, short(urn)
    assert cluster not in reachable(monitor, named(monitor, "buckets-research.checkpoints"))


def test_what_outlives_the_platform() -> None:
    teams = {"research": {"storage": {"kept": {}, "going": {"keep": False}}}}
    monitor = changed(teams=teams, queues={}, protect=True)
    kept, going = (monitor.requests[named(monitor, f"buckets-research.{name}")] for name in ("kept", "going"))
    assert (kept.retainOnDelete, kept.protect, inputs(kept)["forceDestroy"]) == (True, True, False)
    assert (going.retainOnDelete, going.protect, inputs(going)["forceDestroy"]) == (False, True, True)
    assert monitor.exports["storage"] == {
        "research.kept": {"address": "gs://my-project_tpu-team_research_kept", "kept_on_destroy": True},
        "research.going": {"address": "gs://my-project_tpu-team_research_going", "kept_on_destroy": False},
    }


def test_a_volume_is_for_one_claim_and_both_are_replaced_together() -> None:
    monitor = graph()
    volume, claim = (monitor.requests[named(monitor, f"team-volumes-research.data{end}")] for end in ("", "-claim"))
    assert inputs(volume)["spec"]["claimRef"] | {"apiVersion": "v1"} == {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "name": "data",
        "namespace": "research",
    }
    assert inputs(claim)["spec"]["volumeName"] == inputs(volume)["metadata"]["name"] == "research.data"
    assert inputs(claim)["spec"]["storageClassName"] == inputs(volume)["spec"]["storageClassName"] == ""
    assert volume.replacement_trigger == claim.replacement_trigger
    other = {"research": {"storage": {"data": {"bucket": "acme-c5", "mount": "/data"}}}, "product": {}}
    moved = changed(teams=other, images={})
    again = moved.requests[named(moved, "team-volumes-research.data")]
    assert again.replacement_trigger != volume.replacement_trigger


def test_a_disk_is_read_by_many_pods_of_one_team_in_its_zone_and_needs_no_grant() -> None:
    weights = {"storage": {"weights": {"disk": "gemma", "mount": "/weights"}}}
    monitor = changed(teams={"research": weights, "product": weights}, images={})
    for team in ("research", "product"):
        urn = named(monitor, f"team-volumes-{team}.weights")
        spec = inputs(monitor.requests[urn])["spec"]
        assert spec["csi"] == {
            "driver": "pd.csi.storage.gke.io",
            "volumeHandle": "projects/my-project/zones/us-east5-b/disks/gemma",
            "fsType": "ext4",
            "readOnly": True,
        }
        (term,) = spec["nodeAffinity"]["required"]["nodeSelectorTerms"]
        assert term["matchExpressions"] == [{"key": "topology.gke.io/zone", "operator": "In", "values": ["us-east5-b"]}]
        assert (spec["claimRef"]["namespace"], spec["persistentVolumeReclaimPolicy"]) == (team, "Retain")
        claim = inputs(monitor.requests[named(monitor, f"team-volumes-{team}.weights-claim")])["spec"]
        assert claim["accessModes"] == spec["accessModes"] == ["ReadOnlyMany"]
    assert not grants(monitor)
    assert monitor.exports["storage"] == {}


def test_a_team_opens_nothing_to_the_internet_unless_it_is_allowed_to() -> None:
    monitor = of(teams={"a": {}, "b": {"load_balancers": 2}})
    closed, open_ = (inputs_of(monitor, f"team-limits-{team}")["spec"]["hard"] for team in ("a", "b"))
    assert closed == {
        "services.loadbalancers": "0",
        "services.nodeports": "0",
        "count/ingresses.networking.k8s.io": "0",
    }
    assert open_ == {"services.loadbalancers": "2", "count/ingresses.networking.k8s.io": "2"}


def test_the_teams_role_hands_on_no_rights() -> None:
    rules = inputs_of(graph(), "team-rights-role")["rules"]
    rights = {
        (group, what, verb) for r in rules for group in r["apiGroups"] for what in r["resources"] for verb in r["verbs"]
    }
    assert ("jobset.x-k8s.io", "jobsets", "create") in rights
    resources = {what for _, what, _ in rights}
    assert not resources & {"roles", "rolebindings", "serviceaccounts/token", "persistentvolumes", "namespaces", "*"}
    assert not {verb for _, _, verb in rights} & {"impersonate", "bind", "escalate", "*"}
    for read_only in ("workloads", "localqueues", "serviceaccounts", "resourceclaims"):
        assert {verb for _, what, verb in rights if what == read_only} == {"get", "list", "watch"}
    viewer = inputs_of(graph(), "team-rights-viewer-role")["rules"]
    assert {verb for rule in viewer for verb in rule["verbs"]} == {"get", "list", "watch"}


def test_members_are_subjects_in_their_own_namespace() -> None:
    binding = inputs_of(graph(), "team-rights-research")
    assert binding["metadata"]["namespace"] == "research"
    assert [(each["kind"], each["name"]) for each in binding["subjects"]] == [
        ("Group", "research@example.com"),
        ("User", "eva@example.com"),
    ]


def test_a_team_of_nobody_gets_no_bindings() -> None:
    monitor = of(teams={"a": {}})
    assert not monitor.of_type("kubernetes:rbac.authorization.k8s.io/v1:RoleBinding")
    assert not [urn for urn in monitor.requests if "team-rights-viewers" in urn]


def test_no_value_of_a_secret_is_in_the_graph_and_only_its_reader_may_read_it() -> None:
    monitor = graph()
    grant = inputs_of(monitor, "secret-grants-research/my-project/hf-token")
    assert grant["member"].endswith("/subject/ns/research/sa/secrets")
    assert grant["role"] == "roles/secretmanager.secretAccessor"
    source = inputs_of(monitor, "team-secrets-secretproviderclass-research")["spec"]["parameters"]["secrets"]
    assert "projects/my-project/secrets/hf-token/versions/latest" in source
    assert not monitor.of_type("kubernetes:core/v1:Secret")
    assert inputs_of(monitor, "cluster-gke")["secretSyncConfig"]["enabled"] is True


def test_hosts_of_accounts_of_their_own_pull_images_too() -> None:
    account = "b@my-project.iam.gserviceaccount.com"
    slices = {"train": {"machine_type": "ct6e-standard-4t", "topology": "4x4", "service_account": account}}
    monitor = of(
        slices=slices, images={"ml": {}, "hub": {"mirror": "docker-hub"}}, teams={"a": {"members": ["user:e@a.de"]}}
    )
    roles = image_roles(monitor)
    for repository in ("tpu-ml", "tpu-hub"):
        assert roles[repository, f"serviceAccount:{account}"] == "reader"
    assert (roles["tpu-ml", "user:e@a.de"], roles["tpu-hub", "user:e@a.de"]) == ("writer", "reader")


def image_roles(monitor: GraphMonitor) -> dict[tuple[str, str], str]:
    """Repository and member -> role, without its service."""
    rows = [inputs(r) for r in monitor.of_type("gcp:artifactregistry/repositoryIamMember:RepositoryIamMember").values()]
    found = {(row["repository"], row["member"]): row["role"].rpartition(".")[2] for row in rows}
    assert len(found) == len(rows), "two resources of one member: the end of one would end the other"
    return found


TWO_TEAMS = {
    "a": {"members": ["user:eva@a.de", "user:both@a.de"]},
    "b": {"members": ["user:max@a.de", "user:both@a.de"]},
}


def test_no_team_pushes_to_the_repository_that_another_teams_jobs_pull() -> None:
    roles = image_roles(
        of(teams=TWO_TEAMS, images={"a": {"teams": ["a"]}, "b": {"teams": ["b"]}, "shared": {"teams": []}})
    )
    pushing = {row for row, role in roles.items() if role == "writer"}
    assert pushing == {
        ("tpu-a", "user:eva@a.de"),
        ("tpu-a", "user:both@a.de"),
        ("tpu-b", "user:max@a.de"),
        ("tpu-b", "user:both@a.de"),
    }
    members = {"user:eva@a.de", "user:max@a.de", "user:both@a.de"}
    assert {row for row in roles if row[1] in members} == {
        (repository, member) for repository in ("tpu-a", "tpu-b", "tpu-shared") for member in members
    }, "every member pulls from every repository"


def test_the_only_team_with_members_pushes_without_being_named() -> None:
    roles = image_roles(of(teams={"a": {"members": ["user:eva@a.de"]}, "b": {}}, images={"ml": {}}))
    assert roles["tpu-ml", "user:eva@a.de"] == "writer"


SELF = {"cluster": SELF_MANAGED, "teams": {"a": {"storage": {"d": {}}}}}


def test_pods_of_a_self_managed_cluster_are_known_by_the_clusters_own_keys() -> None:
    monitor = of(**SELF)
    pool = "0123abcd-tpu"
    provider = inputs_of(monitor, "identity-pool-provider")
    assert provider["oidc"] == {
        "issuerUri": "https://kubernetes.default.svc.cluster.local",
        "jwksJson": '{"keys": []}',
        "allowedAudiences": ["my-project/tpu"],
    }
    (member,) = {member for _, _, member in grants(monitor)}
    assert member == f"principalSet://iam.googleapis.com/{POOL}/{pool}/attribute.namespace/a"
    credential = json.loads(inputs_of(monitor, "federated-credentials-a")["data"]["credential.json"])
    assert credential["audience"] == f"//iam.googleapis.com/{POOL}/{pool}/providers/cluster"
    chosen = monitor.requests[named(monitor, "identity-pool-id")]
    assert list(chosen.ignoreChanges) == ["input"], "the next run of the program would choose another id"
    apis = {inputs(each)["service"] for each in monitor.of_type("gcp:projects/service:Service").values()}
    assert {"sts.googleapis.com", "iamcredentials.googleapis.com", "storage.googleapis.com"} <= apis


def test_without_storage_a_self_managed_cluster_has_no_pool() -> None:
    assert not [urn for urn in of(cluster=SELF_MANAGED, teams={"a": {}}).requests if "identity-pool" in urn]
