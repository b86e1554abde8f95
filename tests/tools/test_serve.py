"""`python -m tools workload serve`: servers that fit the platform's slices, and clear refusals where none would."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from catalogue.labels import FLAVOR_LABEL
from plan.workloads.server import VLLM_IMAGE
from rules.load import load_stack_file
from tests.graph.recording import ROOT
from tests.platforms import EXISTING, EXISTING_NETWORK, SELF_MANAGED
from tests.schema.test_kubernetes_objects import validate
from tests.tools.test_workload import DEV, MOUNTS, RECIPE, TEAM, documents, refused
from tools.__main__ import app

GEMMA = ("--model", "google/gemma-3-1b-it")
SEVERAL = "--experimental-multi-host"
PROVISIONER = ROOT / "Pulumi.provisioner.yaml"


def serve(file: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["workload", "serve", "-f", str(file), *arguments])


def served(file: Path, *arguments: str) -> list[Any]:
    """Objects of a server."""
    return documents(serve(file, *arguments))


def template(server: Any, which: str = "workerTemplate") -> Any:
    return server["spec"]["leaderWorkerTemplate"][which]


def container(server: Any, which: str = "workerTemplate") -> Any:
    (found,) = template(server, which)["spec"]["containers"]
    return found


@pytest.fixture
def teams(stack_file: Any) -> Path:
    """A stack file with a team that has a bucket with and one without a mount, and a disk; five slices of a host."""
    storage = {
        "models": {"bucket": "acme-models", "mount": "/models"},
        "raw": {"bucket": "acme-raw"},
        "fast": {"disk": "gemma", "mount": "/fast"},
    }
    file: Path = stack_file(
        {"chips": {"machine_type": "ct6e-standard-4t", "topology": "2x2", "count": 5}},
        teams={"a": {"storage": storage}},
        queues={"q": {"namespaces": ["a"], "slices": {"chips": 5}}},
    )
    return file


@pytest.mark.parametrize(
    ("file", "arguments"),
    [
        (DEV, ["serve"]),
        (DEV, ["serve", "--queue", "team"]),
        (TEAM, ["serve", "--queue", "product"]),
        (RECIPE, ["pair", "--queue", "research", SEVERAL]),
    ],
)
def test_servers_are_valid(file: Path, arguments: list[str]) -> None:
    server, service = served(file, *arguments, *GEMMA)
    validate(server)
    validate(service)
    assert "type" not in service["spec"], "a public address is nobody's default"


def test_a_server_goes_through_its_queue_as_one_pod_for_each_slice(teams: Path) -> None:
    """M2: it was a Deployment, whose pods Kueue neither holds back nor counts."""
    server, service = served(teams, "chips", *GEMMA, "--queue", "q")
    assert (server["kind"], server["metadata"]["name"], server["metadata"]["namespace"]) == (
        "LeaderWorkerSet",
        "chips",
        "a",
    )
    assert server["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "q"}
    assert "annotations" not in server["metadata"], "hosts of one group share their node pool"
    assert server["spec"]["replicas"] == 1, "never all slices unasked"
    assert server["spec"]["leaderWorkerTemplate"]["size"] == 1
    assert "leaderTemplate" not in server["spec"]["leaderWorkerTemplate"]
    assert container(server)["resources"]["limits"] == {"google.com/tpu": 4}
    assert service["metadata"]["name"] != server["metadata"]["name"], "that is the controller's own headless Service"
    assert service["spec"]["selector"] == {
        "leaderworkerset.sigs.k8s.io/name": "chips",
        "leaderworkerset.sigs.k8s.io/worker-index": "0",
    }
    (port,) = service["spec"]["ports"]
    assert container(server)["readinessProbe"]["httpGet"] == {"path": "/health", "port": port["targetPort"]}


def test_a_pod_selects_the_labels_that_its_pool_declares() -> None:
    (plan,) = load_stack_file(DEV).slice_plans
    server, _ = served(DEV, "serve", *GEMMA)
    assert template(server)["spec"]["nodeSelector"][FLAVOR_LABEL] == plan.labels[FLAVOR_LABEL]
    assert template(server)["spec"]["resourceClaims"]


def test_as_many_servers_as_asked_for(teams: Path) -> None:
    assert served(teams, "chips", *GEMMA, "--replicas", "3")[0]["spec"]["replicas"] == 3
    said = "6 slices of chips asked for, the platform has 5; ask for fewer (--replicas), or raise slices.chips.count"
    refused(serve(teams, "chips", *GEMMA, "--replicas", "6"), said)


def test_flags_after_two_dashes_are_vllms(teams: Path) -> None:
    server, _ = served(teams, "chips", *GEMMA, "--", "--max-model-len=2048", "--enforce-eager")
    assert container(server)["args"] == [
        "--port=8000",
        "--model=google/gemma-3-1b-it",
        "--tensor-parallel-size=4",
        "--max-model-len=2048",
        "--enforce-eager",
    ]
    server, _ = served(teams, "chips", *GEMMA, "--", "--tensor-parallel-size", "2", "--data-parallel-size", "2")
    assert not [each for each in container(server)["args"] if each.startswith("--tensor-parallel-size=")]


@pytest.mark.parametrize("flag", ["--port", "--model", "--served-model-name"])
def test_flags_that_the_tool_sets_are_refused(flag: str) -> None:
    for given in ([flag, "1"], [f"{flag}=1"]):
        refused(serve(DEV, "serve", *GEMMA, "--", *given), f"{flag} is not for you to set")


def test_an_open_model_needs_no_token() -> None:
    assert "HF_TOKEN" not in str(served(DEV, "serve", *GEMMA))


def test_a_token_comes_from_a_secret() -> None:
    for given, key in (("hf-secret", "hf_api_token"), ("hf-secret:token", "token")):
        variable, *_ = container(served(DEV, "serve", *GEMMA, "--token", given)[0])["env"]
        assert variable == {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf-secret", "key": key}}}


def test_a_team_brings_its_token_and_its_storage() -> None:
    server, _ = served(TEAM, "serve", *GEMMA, "--queue", "research")
    validate(server)
    found = container(server)
    assert found["envFrom"] == [{"secretRef": {"name": "secrets"}}]
    assert "HF_TOKEN" not in [each["name"] for each in found["env"]]
    assert found["image"] == f"us-east5-docker.pkg.dev/my-project/tpu-team-hub/{VLLM_IMAGE}"
    assert found["volumeMounts"][1:] == MOUNTS
    assert template(server)["metadata"]["annotations"]["gke-gcsfuse/volumes"] == "true"


@pytest.mark.parametrize(
    ("weights", "place", "streamed"),
    [
        ("models/gemma", "/models/gemma", False),
        ("fast", "/fast", False),
        ("raw/gemma/", "gs://acme-raw/gemma", True),
        ("gs://elsewhere/gemma", "gs://elsewhere/gemma", True),
    ],
)
def test_weights_come_from_files_or_from_a_bucket(teams: Path, weights: str, place: str, streamed: bool) -> None:
    server, _ = served(teams, "chips", *GEMMA, "--weights", weights)
    arguments = container(server)["args"]
    assert arguments[1:3] == [f"--model={place}", "--served-model-name=google/gemma-3-1b-it"]
    assert ("--load-format=runai_streamer" in arguments) is streamed


def test_a_priority_an_image_and_a_name_are_taken(stack_file: Any) -> None:
    file = stack_file(
        {"chips": {"machine_type": "ct6e-standard-4t", "topology": "2x2"}},
        queues={"q": {"namespaces": ["a"], "slices": {"chips": 1}}},
        priorities={"high": 1000},
    )
    options = ["--queue", "q", "--priority", "high", "--image", "example.com/vllm@sha256:0", "--name", "gemma"]
    server, service = served(file, "chips", *GEMMA, *options)
    assert server["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] == "high"
    assert container(server)["image"] == "example.com/vllm@sha256:0"
    assert (server["metadata"]["name"], service["metadata"]["name"]) == ("gemma", "gemma-http")


def test_a_slice_of_several_hosts_is_one_group_that_ray_joins() -> None:
    server, _ = served(RECIPE, "pair", *GEMMA, "--queue", "research", SEVERAL)
    group = server["spec"]["leaderWorkerTemplate"]
    assert group["size"] == 2
    assert group["restartPolicy"] == "RecreateGroupOnPodRestart"
    exclusive = server["metadata"]["annotations"]["leaderworkerset.sigs.k8s.io/exclusive-topology"]
    assert exclusive == "cloud.google.com/gke-nodepool"
    leader, worker = container(server, "leaderTemplate"), container(server)
    assert "--tensor-parallel-size=8" in leader["args"]
    assert "--ray_cluster_size=$LWS_GROUP_SIZE" in leader["command"][2]
    assert "--ray_address=$LWS_LEADER_ADDRESS" in worker["command"][2]
    assert not {"args", "ports", "readinessProbe"} & set(worker), "only the leader answers requests"
    for each in (leader, worker):
        assert {"name": "TPU_MULTIHOST_BACKEND", "value": "ray"} in each["env"]


def test_several_hosts_share_their_slice_with_nobody() -> None:
    """JobSet's exclusive placement does not know servers, and that of servers neither JobSets nor other namespaces."""
    server, _ = served(RECIPE, "pair", *GEMMA, "--queue", "research", SEVERAL)
    terms = template(server, "leaderTemplate")["spec"]["affinity"]["podAntiAffinity"]
    jobs, servers = terms["requiredDuringSchedulingIgnoredDuringExecution"]
    assert jobs["labelSelector"]["matchExpressions"] == [{"key": "jobset.sigs.k8s.io/job-key", "operator": "Exists"}]
    assert jobs["namespaceSelector"] == {}, "in every namespace"
    assert jobs["topologyKey"] == servers["topologyKey"] == "cloud.google.com/gke-nodepool"
    (elsewhere,) = servers["namespaceSelector"]["matchExpressions"]
    assert (elsewhere["operator"], elsewhere["values"]) == ("NotIn", [server["metadata"]["namespace"]])
    assert "affinity" not in template(server)["spec"], "workers follow their leader"
    assert "affinity" not in template(served(DEV, "serve", *GEMMA)[0])["spec"], "single hosts share their pool"


def test_kueue_places_a_group_on_one_slice(stack_file: Any) -> None:
    """Its rules for the annotation: two sets of pods, one of them a single pod, the same required topology, no slices
    of pods, no number for a name."""
    file = stack_file(
        {
            "pair": {"machine_type": "ct6e-standard-4t", "topology": "2x4"},
            "single": {"machine_type": "ct6e-standard-1t", "topology": "1x1"},
        },
        queues={"q": {"namespaces": ["a"], "slices": {"pair": 1, "single": 1}}},
        software={"kueue": {"topology_aware": True}},
    )
    server, _ = served(file, "pair", *GEMMA, "--queue", "q", SEVERAL)
    leader, worker = (
        template(server, which)["metadata"]["annotations"] for which in ("leaderTemplate", "workerTemplate")
    )
    assert leader == worker
    assert leader == {
        "kueue.x-k8s.io/podset-required-topology": "cloud.google.com/gke-nodepool",
        "kueue.x-k8s.io/podset-group-name": "pair",
    }
    alone, _ = served(file, "single", *GEMMA, "--queue", "q")
    assert "annotations" not in template(alone)["metadata"], "nothing to keep together"


def test_under_dra_the_group_says_who_its_workers_are() -> None:
    """LeaderWorkerSet tells it only to containers that request google.com/tpu."""
    server, _ = served(RECIPE, "pair", *GEMMA, "--queue", "research", SEVERAL)
    for which in ("leaderTemplate", "workerTemplate"):
        names = [each["name"] for each in container(server, which)["env"]]
        # A variable may only refer to those before it.
        assert names.index("SERVER_GROUP") < names.index("TPU_WORKER_HOSTNAMES")
        hosts = container(server, which)["env"][names.index("TPU_WORKER_HOSTNAMES")]["value"]
        assert hosts == "pair-$(SERVER_GROUP).pair,pair-$(SERVER_GROUP)-1.pair"


def test_without_gke_a_server_is_the_same(stack_file: Any) -> None:
    slices = {"single": {"machine_type": "tpu7x-standard-4t", "topology": "2x2x1"}}
    server, _ = served(stack_file(slices, zone="us-central1-c", cluster=SELF_MANAGED), "single", *GEMMA)
    validate(server)
    assert "--tensor-parallel-size=8" in container(server)["args"], "two devices a chip"


def test_a_name_is_as_long_as_kueues_label_allows(teams: Path) -> None:
    served(teams, "chips", *GEMMA, "--queue", "q", "--name", "x" * 39)
    refused(serve(teams, "chips", *GEMMA, "--queue", "q", "--name", "x" * 40), "1 characters too long")


@pytest.mark.parametrize(
    ("file", "arguments", "said"),
    [
        (RECIPE, ["pair"], "2 hosts a slice, and vLLM on several TPU hosts is experimental"),
        (DEV, ["serve", SEVERAL], "one host a slice: leave out --experimental-multi-host"),
        (DEV, ["serve", "--replicas", "2"], "2 slices of serve asked for, the platform has 1"),
        (DEV, ["serve", "--weights", "gs://my-bucket"], "has no path: write gs://my-bucket/PATH"),
        (DEV, ["serve", "--weights", "gs://b/c"], "b is no bucket name"),
        (DEV, ["serve", "--weights", ""], "--weights is empty: is a variable unset?"),
        (DEV, ["serve", "--model", "", "--token", ""], "--model is empty: is a variable unset?; --token is empty"),
        (DEV, ["serve", "--token", "Bad Secret"], "--token 'Bad Secret' is no Secret: write its NAME in lower case"),
        (DEV, ["serve", "--token", "hf:"], "--token 'hf:' is no Secret"),
        (DEV, ["serve", "--weights", "models"], "has no storage called models: it has none"),
        (DEV, ["serve", "--queue", "nobody"], "no queue nobody: it has"),
        (PROVISIONER, ["train"], "for JobSets only, and a server is none"),
    ],
)
def test_a_server_that_does_not_fit_is_refused(file: Path, arguments: list[str], said: str) -> None:
    refused(serve(file, *GEMMA, *arguments), said)


def test_the_page_makes_the_secret_where_the_server_runs() -> None:
    """B5 of users.md."""
    lines = (ROOT / "docs" / "serving.md").read_text().splitlines()
    (secret,) = (line for line in lines if "create secret" in line)
    (command,) = (line for line in lines if "--token hf-secret" in line)
    arguments = command.partition("workload serve ")[2].partition(" -s dev")[0].split()
    assert f"kubectl -n {served(DEV, *arguments)[0]['metadata']['namespace']} " in secret


def test_weights_in_a_bucket_need_an_identity(stack_file: Any) -> None:
    """Without GKE only pods of teams with storage have one."""
    file = stack_file(
        {"single": {"machine_type": "ct6e-standard-8t", "topology": "2x4"}},
        cluster=SELF_MANAGED,
        teams={"a": {"storage": {"models": {}}}, "b": {}},
    )
    arguments = ["single", *GEMMA, "--weights", "gs://acme/gemma"]
    served(file, *arguments, "-n", "a")
    refused(serve(file, *arguments, "-n", "b"), "--weights gs:// needs an identity for pods, which only a team")


@pytest.fixture
def reachable(stack_file: Any) -> Path:
    """A stack file of a GKE cluster with gateways and autoscaling by metrics; team `open` has a key for servers."""
    file: Path = stack_file(
        {"chips": {"machine_type": "ct6e-standard-4t", "topology": "2x2", "count": 5}},
        cluster={"gateway": True, "metric_autoscaling": True},
        network={"proxy_only_cidr": "10.0.64.0/23"},
        teams={"closed": {}, "open": {"secrets": {"VLLM_API_KEY": "key"}}},
        queues={
            "q": {"namespaces": ["closed"], "slices": {"chips": 3}, "borrow": {"chips": 1}},
            "p": {"namespaces": ["open"], "slices": {"chips": 2}},
        },
    )
    return file


def by_kind(manifests: list[Any]) -> dict[str, Any]:
    return {each["kind"]: each for each in manifests}


def test_a_gateway_leads_to_the_servers_service(reachable: Path) -> None:
    made = by_kind(served(reachable, "chips", *GEMMA, "--queue", "q", "--gateway", "internal"))
    assert made["Gateway"]["spec"]["gatewayClassName"] == "gke-l7-rilb"
    (listener,) = made["Gateway"]["spec"]["listeners"]
    assert (listener["protocol"], listener["port"]) == ("HTTP", 80)
    service = made["Service"]["metadata"]["name"]
    (rule,) = made["HTTPRoute"]["spec"]["rules"]
    assert rule == {"backendRefs": [{"name": service, "port": 8000}]}, "GKE refuses timeouts in routes"
    (parent,) = made["HTTPRoute"]["spec"]["parentRefs"]
    assert parent["name"] == made["Gateway"]["metadata"]["name"]
    for kind in ("HealthCheckPolicy", "GCPBackendPolicy"):
        assert made[kind]["spec"]["targetRef"] == {"group": "", "kind": "Service", "name": service}
    check = made["HealthCheckPolicy"]["spec"]["default"]["config"]["httpHealthCheck"]
    assert check == {"port": 8000, "requestPath": "/health"}


def balanced_team(stack_file: Any, network: dict[str, Any]) -> Path:
    """A team on a cluster with gateways."""
    file: Path = stack_file(
        {"chips": {"machine_type": "ct6e-standard-4t", "topology": "2x2"}},
        teams={"a": {}},
        cluster={"gateway": True},
        network=network,
    )
    return file


THEIR_NETWORK = {**EXISTING_NETWORK, "services_range": "q"}


@pytest.mark.parametrize("network", [{}, THEIR_NETWORK], ids=["own", "existing"])
def test_a_teams_pods_admit_the_load_balancer(stack_file: Any, network: dict[str, Any]) -> None:
    """The team's NetworkPolicy admits neither its health checks nor its proxies."""
    file = balanced_team(stack_file, {**network, "proxy_only_cidr": "10.0.64.0/23"})
    made = by_kind(served(file, "chips", *GEMMA, "--gateway", "internal", "--name", "team"))
    policy = made["NetworkPolicy"]
    validate(policy)
    assert policy["metadata"]["namespace"] == "a"
    assert policy["metadata"]["name"] != "team", "that is the program's own policy"
    assert policy["spec"]["podSelector"]["matchLabels"] == made["Service"]["spec"]["selector"]
    (rule,) = policy["spec"]["ingress"]
    assert [each["ipBlock"]["cidr"] for each in rule["from"]] == ["35.191.0.0/16", "130.211.0.0/22", "10.0.64.0/23"]
    assert rule["ports"] == [{"protocol": "TCP", "port": 8000}]


def test_the_proxies_of_an_existing_network_must_be_known(stack_file: Any) -> None:
    file = balanced_team(stack_file, THEIR_NETWORK)
    refused(serve(file, "chips", *GEMMA, "--gateway", "internal"), "needs network.proxy_only_cidr")


def test_outside_of_teams_nothing_has_to_be_opened(stack_file: Any) -> None:
    file = stack_file(
        {"chips": {"machine_type": "ct6e-standard-4t", "topology": "2x2"}},
        cluster={"gateway": True},
        network={"proxy_only_cidr": "10.0.64.0/23"},
    )
    assert "NetworkPolicy" not in by_kind(served(file, "chips", *GEMMA, "--gateway", "internal"))


@pytest.mark.parametrize("provides", [["kueue"], []])
def test_a_kueue_of_somebody_else_may_not_know_servers(stack_file: Any, provides: list[str]) -> None:
    file = stack_file(
        {"single": {"machine_type": "ct6e-standard-8t", "topology": "2x4"}},
        queues={"q": {"namespaces": ["a"], "slices": {"single": 1}}},
        cluster={**EXISTING, "version": "1.34.2", "provides": provides},
        network=EXISTING_NETWORK,
    )
    result = serve(file, "single", *GEMMA, "--queue", "q")
    assert documents(result)
    said = "integrations.frameworks names leaderworkerset.x-k8s.io/leaderworkerset and pod"
    assert (said in result.stderr) is bool(provides)


def test_the_internet_reaches_a_server_by_tls_and_with_a_key_only(reachable: Path) -> None:
    asked = ["chips", *GEMMA, "--gateway", "external"]
    refused(serve(reachable, *asked, "--queue", "p"), "needs --certificate SECRET")
    closed = serve(reachable, *asked, "--queue", "q", "--certificate", "tls")
    refused(closed, "write teams: {closed: {secrets: {VLLM_API_KEY: NAME}}} in the stack file")
    assert "--certificate" not in closed.stderr
    refused(serve(reachable, *asked, "--queue", "q"), "in clear; --gateway external needs a key")
    made = by_kind(served(reachable, *asked, "--queue", "p", "--certificate", "tls"))
    (rule,) = made["HTTPRoute"]["spec"]["rules"]
    assert rule["matches"] == [{"path": {"type": "PathPrefix", "value": "/v1"}}], "the rest answers without a key"
    assert {"secretRef": {"name": "secrets"}} in container(made["LeaderWorkerSet"])["envFrom"]
    assert made["Gateway"]["spec"]["gatewayClassName"] == "gke-l7-regional-external-managed"
    (listener,) = made["Gateway"]["spec"]["listeners"]
    assert (listener["protocol"], listener["port"]) == ("HTTPS", 443)
    assert listener["tls"]["certificateRefs"] == [{"kind": "Secret", "name": "tls"}]


def test_servers_are_added_as_requests_wait(reachable: Path) -> None:
    made = by_kind(served(reachable, "chips", *GEMMA, "--queue", "q", "--max-replicas", "4"))
    assert "replicas" not in made["LeaderWorkerSet"]["spec"], "kubectl apply would set back what the autoscaler has set"
    validate(made["HorizontalPodAutoscaler"])
    scaler = made["HorizontalPodAutoscaler"]["spec"]
    assert (scaler["minReplicas"], scaler["maxReplicas"]) == (1, 4)
    assert scaler["scaleTargetRef"] == {
        "apiVersion": made["LeaderWorkerSet"]["apiVersion"],
        "kind": "LeaderWorkerSet",
        "name": "chips",
    }
    (metric,) = made["AutoscalingMetric"]["spec"]["metrics"]
    (asked,) = metric["pod"]["containers"]
    assert asked["endpoint"] == {"port": 8000, "path": "/metrics"}
    name = asked["metrics"][0]["gauge"]["name"]
    assert scaler["metrics"][0]["pods"]["metric"]["name"] == f"autoscaling.gke.io|chips|{name}"
    labels = template(made["LeaderWorkerSet"])["metadata"]["labels"]
    assert metric["pod"]["selector"]["matchLabels"].items() <= labels.items()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--gateway", "internal"], "needs cluster.gateway: true and network.proxy_only_cidr in the stack file, and"),
        (["--gateway", "global"], "neither internal nor external"),
        (["--certificate", "tls"], "--certificate is for the load balancer"),
        (["--max-replicas", "2"], "needs cluster.metric_autoscaling: true"),
    ],
)
def test_what_the_cluster_lacks_is_refused(arguments: list[str], said: str) -> None:
    refused(serve(DEV, "serve", *GEMMA, *arguments), said)


def test_scaling_stays_within_the_slices(reachable: Path) -> None:
    asked = ["chips", *GEMMA, "--queue", "q"]
    refused(
        serve(reachable, *asked, "--max-replicas", "6"), "the platform has 5; lower --max-replicas, or raise slices"
    )
    said = "queue q can never have 5 slices of chips, at most 4 with what it may borrow; lower --max-replicas, or raise"
    refused(serve(reachable, *asked, "--max-replicas", "5"), said)
    refused(serve(reachable, *asked, "--replicas", "3", "--max-replicas", "3"), "not above --replicas 3")
    said = "at most 4 with what it may borrow; ask for fewer (--replicas)"
    refused(serve(reachable, *asked, "--replicas", "5"), said)


@pytest.mark.parametrize(("option", "value"), [("--gateway", "internal"), ("--max-replicas", "2")])
def test_load_balancers_and_autoscaling_are_gkes(stack_file: Any, option: str, value: str) -> None:
    slices = {"single": {"machine_type": "ct6e-standard-8t", "topology": "2x4", "count": 2}}
    refused(serve(stack_file(slices, cluster=SELF_MANAGED), "single", *GEMMA, option, value), "needs GKE")
