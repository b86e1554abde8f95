"""`python -m tools why`: what holds a job back, by what kubectl would print of its cluster."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from plan import flavors
from plan.workloads.job import Job as Asked
from plan.workloads.jobset import jobset
from rules.load import load_stack_file
from tests.graph.recording import ROOT
from tools.__main__ import app
from tools.why.cluster import Cluster

Object = dict[str, Any]
RECIPE, BLUEPRINT, PROVISIONER = (ROOT / f"Pulumi.{name}.yaml" for name in ("recipe", "blueprint", "provisioner"))
UNKNOWN = "error: the server doesn't have a resource type"
PLURALS = {
    "JobSet": "jobsets.jobset.x-k8s.io",
    "LeaderWorkerSet": "leaderworkersets.leaderworkerset.x-k8s.io",
    "Job": "jobs.batch",
    "Pod": "pods",
    "Workload": "workloads.kueue.x-k8s.io",
    "Event": "events",
    "ResourceClaim": "resourceclaims.resource.k8s.io",
    "LocalQueue": "localqueues.kueue.x-k8s.io",
    "ProvisioningRequest": "provisioningrequests.autoscaling.x-k8s.io",
    "Node": "nodes",
    "ClusterQueue": "clusterqueues.kueue.x-k8s.io",
}


class World:
    """A cluster with one JobSet of the recipe's pair of slices, in its queue."""

    def __init__(self, file: Path = RECIPE, group: str = "pair", queue: str = "research", slices: int = 2) -> None:
        self.file = file
        self.platform = load_stack_file(file)
        self.plan = next(plan for plan in self.platform.slice_plans if plan.group == group)
        self.flavor = flavors.flavors(self.platform)[self.plan.flavor]
        namespace = self.platform.queues[queue].namespaces[0]
        self.namespace, self.queue = namespace, queue
        self.job = jobset(self.platform, self.plan, Asked("run", namespace, slices, queue=queue))
        self.job["metadata"]["uid"] = "uid-run"
        self.objects: list[Object] = [self.job]
        self.unserved: set[str] = {"LeaderWorkerSet", "ProvisioningRequest"}
        self.forbidden: set[str] = set()
        self.add("LocalQueue", queue, spec={"clusterQueue": queue})
        self.quota = self.add("ClusterQueue", queue, "", spec=self._quota(slices))

    def _quota(self, slices: int) -> Object:
        resource = {"name": self.flavor.resource, "nominalQuota": str(slices * self.flavor.chips)}
        each = {"name": self.flavor.name, "resources": [resource]}
        return {"resourceGroups": [{"coveredResources": [self.flavor.resource], "flavors": [each]}]}

    def add(self, kind: str, name: str, namespace: str | None = None, **fields: Any) -> Object:
        metadata = {"name": name, "namespace": self.namespace if namespace is None else namespace, "uid": f"uid-{name}"}
        metadata |= {"creationTimestamp": "2026-11-23T08:00:00Z", **fields.pop("metadata", {})}
        made = {"kind": kind, "metadata": metadata, "spec": {}, "status": {}, **fields}
        self.objects.append(made)
        return made

    def workload(self, name: str, of: Object, *conditions: tuple[str, str, str, str], **fields: Any) -> Object:
        owner = {"kind": of["kind"], "name": of["metadata"]["name"], "uid": of["metadata"]["uid"]}
        template = {"spec": {}}
        hosts = self.plan.hosts * 2
        status = {
            "conditions": [
                {"type": kind, "status": state, "reason": reason, "message": said, "lastTransitionTime": "08:01"}
                for kind, state, reason, said in conditions
            ],
            **fields.pop("status", {}),
        }
        spec = {"podSets": [{"name": "slice", "count": hosts, "template": template}], **fields.pop("spec", {})}
        return self.add("Workload", name, metadata={"ownerReferences": [owner]}, spec=spec, status=status)

    def admission(self) -> Object:
        flavor, chips = self.flavor, self.plan.hosts * 2 * self.flavor.chips_per_host
        assigned = {"name": "slice", "flavors": {flavor.resource: flavor.name}}
        return {"admission": {"podSetAssignments": [assigned | {"resourceUsage": {flavor.resource: str(chips)}}]}}

    def admit(self) -> None:
        self.workload(
            "w", self.job, ("QuotaReserved", "True", "", ""), ("Admitted", "True", "", ""), status=self.admission()
        )

    def node(self, name: str, *, ready: bool = True, cordoned: bool = False) -> None:
        labels = {**self.flavor.node_labels, "cloud.google.com/gke-nodepool": "pair-0"}
        ready_now = [{"type": "Ready", "status": str(ready)}]
        spec = {"unschedulable": True} if cordoned else {}
        self.add("Node", name, "", metadata={"labels": labels}, spec=spec, status={"conditions": ready_now})

    def pod(self, name: str, phase: str = "Pending", node: str = "", **fields: Any) -> Object:
        labels = {"jobset.sigs.k8s.io/jobset-name": "run"}
        spec = {"nodeName": node, **fields.pop("spec", {})} if node else fields.pop("spec", {})
        return self.add("Pod", name, metadata={"labels": labels}, spec=spec, status={"phase": phase, **fields})

    def event(self, about: Object, reason: str, message: str, **fields: Any) -> None:
        self.add(
            "Event",
            f"event-{len(self.objects)}",
            type="Warning",
            reason=reason,
            message=message,
            involvedObject={"uid": about["metadata"]["uid"]},
            **fields,
        )

    def kubectl(self, *arguments: str) -> tuple[str, str]:
        """What kubectl prints, and its errors; the kinds it is asked for must be served."""
        assert arguments[0] == "get", "only reads"
        if arguments[1] == "--raw":
            served = {plural.partition(".")[2] for kind, plural in PLURALS.items() if kind not in self.unserved}
            return json.dumps({"groups": [{"name": name} for name in served if name]}), ""
        kinds = {plural: kind for kind, plural in PLURALS.items()}
        asked = [kinds[plural] for plural in arguments[1].split(",")]
        assert not self.unserved & set(asked), UNKNOWN
        where = arguments[2].partition("=")[2]
        found = [
            each
            for each in self.objects
            if each["kind"] in asked
            and each["kind"] not in self.forbidden
            and (not where or each["metadata"]["namespace"] == where)
        ]
        refused = [f"Error from server (Forbidden): {kind} is forbidden" for kind in asked if kind in self.forbidden]
        return json.dumps({"items": found}), "\n".join(refused)


@pytest.fixture
def why(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Runs the command on a world."""

    def run(world: World, *arguments: str) -> Result:
        monkeypatch.setattr(Cluster, "_kubectl", lambda _self, *given: world.kubectl(*given))
        environment = {"COLUMNS": "400", "TERM": "dumb"}
        return CliRunner().invoke(app, ["why", "-f", str(world.file), *arguments], env=environment)

    return run


def said(result: Result, exit_code: int, *texts: str) -> None:
    assert result.exit_code == exit_code, result.output
    for text in texts:
        assert text in result.stdout, result.stdout


def test_a_job_that_waits_for_quota_reads_who_holds_it(why: Any) -> None:
    world = World()
    message = "insufficient unused quota for google.com/tpu-dra in flavor v5e, 16 more needed"
    world.workload("w", world.job, ("QuotaReserved", "False", "Pending", message))
    other = world.add("JobSet", "other", spec={"replicatedJobs": []})
    world.workload(
        "o", other, ("QuotaReserved", "True", "", ""), ("Admitted", "True", "", ""), status=world.admission()
    )
    usage = {"name": world.flavor.resource, "total": "16", "borrowed": "8"}
    world.quota["status"] = {"flavorsReservation": [{"name": world.flavor.name, "resources": [usage]}]}
    said(
        why(world, "run"),
        0,
        "JobSet research/run waits: research (ClusterQueue research): waits: insufficient unused quota",
        f"research uses 16 of its 16 chips of {world.flavor.name}, 8 of them borrowed",
        "the job asks for 16; ",
        "held by research/other (16)",
    )


def test_a_job_that_its_queue_can_never_have_needs_a_person(why: Any) -> None:
    world = World(queue="research")
    world.workload("w", world.job, ("QuotaReserved", "False", "Pending", "insufficient quota"))
    world.objects[-1]["spec"]["podSets"][0]["count"] = 100
    said(why(world, "run"), 1, "the job wants 400 chips and queue research can never have more than 16", "do: ask for")


def test_a_preempted_job_reads_by_whom(why: Any) -> None:
    world = World()
    other = world.add("JobSet", "first", spec={"replicatedJobs": []})
    world.workload("o", other, ("QuotaReserved", "True", "", ""))
    preempted = "Preempted to accommodate a workload (UID: uid-o, JobUID: uid-first) due to prioritization"
    world.workload(
        "w", world.job, ("QuotaReserved", "False", "Pending", preempted), ("Evicted", "True", "Preempted", preempted)
    )
    said(why(world, "jobset/run"), 0, "evicted before: Preempted for JobSet research/first at 08:01")


def test_a_deactivated_workload_needs_a_person(why: Any) -> None:
    world = World()
    world.workload("w", world.job, ("Evicted", "True", "PodsReadyTimeout", "no pods"), spec={"active": False})
    said(
        why(world, "run"),
        1,
        "deactivated; evicted before: PodsReadyTimeout",
        "do: kubectl -n research patch workload w",
    )


def test_a_queue_that_is_stopped_or_not_there_needs_a_person(why: Any) -> None:
    world = World()
    world.workload("w", world.job, ("QuotaReserved", "False", "Pending", "ClusterQueue research is inactive"))
    world.quota["spec"]["stopPolicy"] = "Hold"
    said(why(world, "run"), 1, "queue research is stopped (Hold)", "do: kubectl patch clusterqueue research")
    world = World()
    world.workload("w", world.job, ("QuotaReserved", "False", "Inadmissible", "LocalQueue nowhere doesn't exist"))
    world.job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "nowhere"
    said(why(world, "run"), 1, "there is no LocalQueue nowhere in namespace research", "get localqueues")


def test_a_job_that_waits_for_queued_provisioning_reads_how_long(why: Any) -> None:
    world = World(BLUEPRINT, "train", "training")
    world.unserved.discard("ProvisioningRequest")
    check = {"name": "queued-2x2x2", "state": "Pending", "message": ""}
    status = {"admissionChecks": [check], **world.admission()}
    world.workload("w", world.job, ("QuotaReserved", "True", "", ""), status=status)
    accepted = {"conditions": [{"type": "Accepted", "status": "True"}]}
    world.add("ProvisioningRequest", "w-queued-2x2x2-1", status=accepted)
    said(why(world, "run"), 0, f"queued-2x2x2 is pending (queued: {world.plan.wait})", "w-queued-2x2x2-1: Accepted")
    check["state"] = "Rejected"
    said(why(world, "run"), 1, "is rejected", "do: submit the job again")


def test_an_admitted_job_waits_for_its_hosts(why: Any) -> None:
    world = World(PROVISIONER, "train", "research")
    world.admit()
    world.pod("run-slice-0-0", conditions=[{"type": "PodScheduled", "status": "False", "message": "0/3 nodes"}])
    said(
        why(world, "run"),
        0,
        f"0 of 0 hosts of {world.flavor.name} are ready; how long hosts may take: spot: {world.plan.wait}",
        "TPU Provisioner creates a node pool for each Job of a JobSet; `python -m tools pools`",
        "1 pending; 0/3 nodes",
    )


def test_capacity_models_are_named_in_their_order(why: Any) -> None:
    world = World(ROOT / "Pulumi.ondemand.yaml", "train", "research")
    world.admit()
    said(why(world, "run"), 0, "train: spot: ", ", then flex-start: ", "GKE creates a node pool for each slice")


def test_a_cordoned_host_needs_a_person(why: Any) -> None:
    world = World()
    world.admit()
    world.node("a")
    world.node("b", cordoned=True)
    world.pod("run-slice-0-0", "Running", "a")
    world.pod("run-slice-0-1")
    said(why(world, "run"), 1, "1 of 2 hosts", "pair-0 (2)", "do: kubectl uncordon b")


def test_a_host_that_is_not_ready_is_not_counted(why: Any) -> None:
    world = World()
    world.admit()
    world.node("a", ready=False)
    world.pod("run-slice-0-0")
    said(why(world, "run"), 0, "waits: 0 of 1 hosts")


def test_claims_are_counted_and_a_missing_template_needs_a_person(why: Any) -> None:
    world = World()
    world.admit()
    spec = {"resourceClaims": [{"name": "tpu", "resourceClaimTemplateName": "gone"}]}
    named = {"resourceClaimStatuses": [{"name": "tpu", "resourceClaimName": "claim-0"}]}
    world.pod("run-slice-0-0", "Running", "a", spec=spec, **named)
    world.add("ResourceClaim", "claim-0", status={"allocation": {}})
    world.objects[-1]["status"] = {"allocation": {"devices": {}}}
    second = world.pod("run-slice-0-1", spec=spec)
    said(why(world, "run"), 0, "1 of 2 have their chips")
    world.event(second, "FailedResourceClaimCreation", "template gone not found")
    said(why(world, "run"), 1, "1 of 2 have their chips; template gone not found")


def test_a_container_that_cannot_start_needs_a_person(why: Any) -> None:
    world = World()
    world.admit()
    world.node("a")
    waiting = {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}
    world.pod("run-slice-0-0", "Pending", "a", containerStatuses=[waiting])
    said(why(world, "run"), 1, "run-slice-0-0: ImagePullBackOff: no such image", "do: kubectl -n research describe pod")


def test_an_admitted_job_without_pods_shows_why_its_jobs_make_none(why: Any) -> None:
    world = World()
    world.admit()
    made = world.add("Job", "run-slice-0", metadata={"ownerReferences": [{"uid": "uid-run"}]})
    world.event(made, "FailedCreate", "an old one", lastTimestamp="2026-11-23T08:02:00Z")
    world.event(made, "FailedCreate", "pods are forbidden", lastTimestamp="2026-11-23T08:03:00Z")
    said(why(world, "run"), 0, "none yet; FailedCreate: an old one; FailedCreate: pods are forbidden")


def test_what_runs_and_what_has_ended(why: Any) -> None:
    world = World()
    world.admit()
    for number in range(2):
        world.node(f"n{number}")
        world.pod(f"run-slice-0-{number}", "Running", f"n{number}")
    said(why(world, "run"), 0, "JobSet research/run runs: 2 running")
    world.job["status"] = {"conditions": [{"type": "Completed", "status": "True", "message": "all jobs completed"}]}
    said(why(world, "run"), 0, "has ended: all jobs completed")
    world.pod("run-slice-1-0", "Failed")
    world.job["status"] = {"conditions": [{"type": "Failed", "status": "True", "message": "too many restarts"}]}
    said(why(world, "run"), 1, "failed: too many restarts", "do: kubectl -n research logs pod/run-slice-1-0")


def test_pods_whose_hosts_are_gone_do_not_run(why: Any) -> None:
    """The API server calls them running until somebody deletes them for good; kubectl says Terminating."""
    world = World()
    world.admit()
    for number in range(2):
        world.node(f"n{number}")
        pod = world.pod(f"run-slice-0-{number}", "Running", f"n{number}")
        pod["metadata"]["deletionTimestamp"] = "2026-11-23T08:05:00Z"
    said(why(world, "run"), 0, "JobSet research/run waits: 2 ending: their hosts are gone")
    world.pod("run-slice-1-0", "Pending", conditions=[{"type": "PodScheduled", "message": "no host fits"}])
    said(why(world, "run"), 0, "2 ending, 1 pending; no host fits")


def test_a_pod_is_answered_by_the_job_that_made_it(why: Any) -> None:
    world = World()
    world.admit()
    job = world.add("Job", "run-slice-0", metadata={"ownerReferences": [{"uid": "uid-run"}]})
    pod = world.pod("run-slice-0-0", "Running", "a")
    pod["metadata"]["ownerReferences"] = [{"uid": job["metadata"]["uid"]}]
    said(why(world, "pod/run-slice-0-0"), 0, "JobSet research/run runs")


def test_groups_of_servers_have_a_workload_each(why: Any) -> None:
    world = World()
    world.unserved.discard("LeaderWorkerSet")
    spec = world.job["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    labels = {"labels": {"kueue.x-k8s.io/queue-name": "research"}}
    template = {"leaderWorkerTemplate": {"workerTemplate": {"spec": spec}}}
    server = world.add("LeaderWorkerSet", "server", metadata=labels, spec=template)
    world.workload(
        "g0", server, ("QuotaReserved", "True", "", ""), ("Admitted", "True", "", ""), status=world.admission()
    )
    world.workload("g1", server, ("QuotaReserved", "False", "Pending", "insufficient quota"))
    member = world.add("Pod", "server-0", metadata={"labels": {"leaderworkerset.sigs.k8s.io/name": "server"}})
    member["status"] = {"phase": "Running"}
    said(why(world, "lws/server"), 0, "LeaderWorkerSet research/server waits", "admitted 08:01", "insufficient quota")
    said(why(world, "pod/server-0"), 0, "LeaderWorkerSet research/server waits")


def test_a_plain_pod_outside_queues(why: Any) -> None:
    world = World()
    outside = next(n for n in world.platform.workload_namespaces if n not in world.platform.queue_namespaces)
    world.add("Pod", "bare", outside, status={"phase": "Pending"})
    result = why(world, "bare", "-n", outside)
    said(result, 0, f"Pod {outside}/bare waits", f"no queue takes work from namespace {outside}")


def test_a_suspended_job_without_a_queue_needs_a_person(why: Any) -> None:
    world = World()
    world.add("Job", "still", spec={"suspend": True, "template": {"spec": {}}})
    said(
        why(world, "still"), 1, "suspended and names no queue", "do: label the job kueue.x-k8s.io/queue-name: research"
    )


def test_a_job_that_runs_on_a_worker_of_multikueue(why: Any) -> None:
    world = World()
    world.workload(
        "w", world.job, ("QuotaReserved", "True", "", ""), ("Admitted", "True", "", ""), status={"clusterName": "east"}
    )
    said(why(world, "run"), 0, "runs: runs on east: ask the stack of that cluster")


def test_without_a_name_every_job_that_has_not_ended(why: Any) -> None:
    world = World()
    world.workload("w", world.job, ("QuotaReserved", "False", "Pending", "insufficient quota"))
    over = world.add("JobSet", "over", spec={"replicatedJobs": []})
    world.workload("o", over, ("Finished", "True", "", ""))
    result = why(world)
    said(result, 0, "JobSet research/run", "waits")
    assert "over" not in result.stdout
    world.objects = world.objects[:1]
    said(why(world), 0, "No job waits or runs.")


def test_for_machines(why: Any) -> None:
    world = World()
    world.workload("w", world.job, ("QuotaReserved", "False", "Pending", "insufficient quota"))
    world.forbidden = {"Node"}
    found = json.loads(why(world, "run", "--json").stdout)
    (job,) = found["jobs"]
    assert (job["job"], job["queue"], job["state"]) == ("JobSet research/run", "research", "waits")
    assert [side["name"] for side in job["sides"]] == ["queue", "quota"]
    assert found["unread"] == ["Error from server (Forbidden): Node is forbidden"]


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("nobody", "there is no JobSet or LeaderWorkerSet or Job or Pod nobody in any namespace"),
        ("daemon/run", "daemon is no kind of job: write job, jobset, leaderworkerset, pod"),
        ("twice", "twice can be Job other/twice and Job research/twice: write KIND/NAME, and -n NAMESPACE"),
    ],
)
def test_a_job_that_cannot_be_found_is_wrong_usage(why: Any, written: str, message: str) -> None:
    world = World()
    for number, namespace in enumerate(("research", "other")):
        world.add("Job", "twice", namespace, metadata={"uid": f"uid-{number}"})
    world.forbidden = {"LeaderWorkerSet"}
    world.unserved.discard("LeaderWorkerSet")
    result = why(world, written)
    assert result.exit_code == 2
    assert message in result.stderr
    assert ("not seen: Error from server (Forbidden)" in result.stderr) == (written != "daemon/run")


def test_quantities_of_a_thousand_chips_are_read(why: Any) -> None:
    """Kueue writes `1k` for a thousand."""
    world = World()
    world.workload("w", world.job, ("QuotaReserved", "False", "Pending", "insufficient unused quota"))
    other = world.add("JobSet", "other", spec={"replicatedJobs": []})
    admission = world.admission()
    admission["admission"]["podSetAssignments"][0]["resourceUsage"] = {world.flavor.resource: "1k"}
    world.workload("o", other, ("QuotaReserved", "True", "", ""), status=admission)
    world.quota["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = "2k"
    usage = {"name": world.flavor.resource, "total": "1k", "borrowed": "0"}
    world.quota["status"] = {"flavorsReservation": [{"name": world.flavor.name, "resources": [usage]}]}
    said(why(world, "run"), 0, "research uses 1000 of its 2000 chips", "held by research/other (1000)")


def test_a_cluster_out_of_reach_is_said_in_kubectls_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cluster, "_kubectl", lambda *_: ("", "E1 memcache\nThe connection was refused"))
    result = CliRunner().invoke(app, ["why", "-f", str(RECIPE)])
    assert result.exit_code == 2
    assert result.stderr == "error: The connection was refused\n"


def test_without_a_kubeconfig_it_says_where_one_is(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = "The connection to the server localhost:8080 was refused - did you specify the right host or port?"
    monkeypatch.setattr(Cluster, "_kubectl", lambda *_: ("", f"E1 memcache\n{refused}\n"))
    result = CliRunner().invoke(app, ["why", "-f", str(RECIPE)])
    assert result.exit_code == 2
    step = "pulumi stack output kubeconfig -s recipe > kubeconfig && export KUBECONFIG=$PWD/kubeconfig"
    assert result.stderr == f"error: {refused} -> {step}\n"


def test_without_kubectl_it_says_to_install_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    result = CliRunner().invoke(app, ["why", "-f", str(RECIPE)])
    assert result.exit_code == 2
    assert result.stderr == "error: kubectl cannot be run: No such file or directory -> install kubectl\n"


def test_a_kubeconfig_of_ones_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A stand-in for kubectl that says which kubeconfig and context it was given."""
    kubectl, kubeconfig = tmp_path / "kubectl", tmp_path / "own"
    kubectl.write_text('#!/bin/sh\necho "$1 $2" >&2\nexit 1\n')
    kubectl.chmod(0o755)
    kubeconfig.write_text("")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    arguments = ["why", "-f", str(RECIPE), "--kubeconfig", str(kubeconfig), "--context", "other"]
    result = CliRunner().invoke(app, arguments)
    assert result.stderr == f"error: --kubeconfig={kubeconfig} --context=other\n"
    assert CliRunner().invoke(app, ["why", "-f", str(RECIPE), "--kubeconfig", "nowhere"]).exit_code == 2
