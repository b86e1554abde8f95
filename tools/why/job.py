"""The job that is asked about, and what belongs to it in the cluster."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from catalogue.labels import QUEUE_LABEL
from tools.why.cluster import BESIDES, KINDS, OF_CLUSTER, WORKLOADS, Cluster, Object

POD_LABELS = {
    "JobSet": "jobset.sigs.k8s.io/jobset-name",
    "LeaderWorkerSet": "leaderworkerset.sigs.k8s.io/name",
    "Job": "batch.kubernetes.io/job-name",
}
"""Label of a job's pods with the job's name, by its kind."""


class JobError(Exception):
    """There is no such job, or several; the message says which."""


def condition(of: Object, kind: str) -> Object:
    """A condition of an object; empty if it has none of that type."""
    found: Iterable[Object] = of.get("status", {}).get("conditions") or []
    return next((each for each in found if each["type"] == kind), {})


def is_true(of: Object, kind: str) -> bool:
    return bool(condition(of, kind).get("status") == "True")


def named(of: Object) -> str:
    """Kind, namespace and name of an object."""
    return f"{of['kind']} {of['metadata']['namespace']}/{of['metadata']['name']}"


@dataclass(frozen=True)
class Job:
    """A job with what the cluster holds for it.

    `workloads`: Kueue's of the whole listing, to name those that hold chips; `besides`: other objects of the job's
    namespace; `of_cluster`: nodes and ClusterQueues.
    """

    live: Object
    listed: Sequence[Object]
    besides: Sequence[Object]
    of_cluster: Sequence[Object]

    @property
    def namespace(self) -> str:
        name: str = self.live["metadata"]["namespace"]
        return name

    @property
    def queue(self) -> str:
        """Name of its LocalQueue; empty if it names none."""
        name: str = self.live["metadata"].get("labels", {}).get(QUEUE_LABEL, "")
        return name

    @cached_property
    def workloads(self) -> Sequence[Object]:
        """Kueue's Workloads of the job: one, or one for each group of a LeaderWorkerSet."""
        uid = self.live["metadata"]["uid"]
        return [each for each in all_workloads(self.listed) if uid in _owners(each)]

    @cached_property
    def pods(self) -> Sequence[Object]:
        """Its pods, by name."""
        if self.live["kind"] == "Pod":
            return [self.live]
        label, name = POD_LABELS[self.live["kind"]], self.live["metadata"]["name"]
        found = [each for each in self._listed("Pod") if each["metadata"].get("labels", {}).get(label) == name]
        return sorted(found, key=lambda pod: str(pod["metadata"]["name"]))

    @property
    def templates(self) -> Iterator[Object]:
        """The pod specs that it asks for."""
        spec = self.live["spec"]
        if self.live["kind"] == "JobSet":
            yield from (each["template"]["spec"]["template"]["spec"] for each in spec["replicatedJobs"])
        elif self.live["kind"] == "LeaderWorkerSet":
            yield spec["leaderWorkerTemplate"]["workerTemplate"]["spec"]
        elif self.live["kind"] == "Job":
            yield spec["template"]["spec"]
        else:
            yield spec

    @cached_property
    def warnings(self) -> Sequence[Object]:
        """Warnings about the job, its Jobs and its pods, the newest last; each reason and message once."""
        about = {each["metadata"]["uid"] for each in (self.live, *self.pods, *self._jobs, *self.workloads)}
        events = [each for each in self.of_kind("Event") if each.get("type") == "Warning" and _subject(each) in about]
        newest = {(each.get("reason"), each.get("message")): each for each in sorted(events, key=_when)}
        return list(newest.values())

    @property
    def _jobs(self) -> Sequence[Object]:
        """The Jobs of a JobSet."""
        uid = self.live["metadata"]["uid"]
        return [each for each in self._listed("Job") if uid in _owners(each)]

    def of_kind(self, kind: str) -> Sequence[Object]:
        """Other objects of the job's namespace, or of the cluster."""
        return [each for each in (*self.besides, *self.of_cluster) if each["kind"] == kind]

    def _listed(self, kind: str) -> Sequence[Object]:
        return [
            each for each in self.listed if each["kind"] == kind and each["metadata"]["namespace"] == self.namespace
        ]


def all_workloads(listed: Iterable[Object]) -> Iterator[Object]:
    """Kueue's Workloads of a listing."""
    return (each for each in listed if each["kind"] == "Workload")


def job_named(cluster: Cluster, written: str, namespace: str | None) -> Job:
    """The job that is meant by NAME or KIND/NAME: that which nothing else has made, if several have the name.

    Raises JobError, and ClusterError where the cluster cannot be read.
    """
    kind, _, name = written.rpartition("/")
    known = {short.lower(): each for each in KINDS for short in (each, f"{each}s")} | {"lws": "LeaderWorkerSet"}
    if kind and kind.lower() not in known:
        raise JobError(f"{kind} is no kind of job: write {', '.join(sorted(each.lower() for each in KINDS))}")
    listed = cluster.list([*KINDS.values(), WORKLOADS], namespace)
    wanted = [known[kind.lower()]] if kind else list(KINDS)
    found = [each for each in listed if each["metadata"]["name"] == name and each["kind"] in wanted]
    if not found:
        raise JobError(f"there is no {' or '.join(wanted)} {name} in {namespace or 'any namespace that you may list'}")
    tops = {each["metadata"]["uid"]: each for each in (top(found_one, listed) for found_one in found)}
    if len(tops) > 1:
        many = " and ".join(sorted(named(each) for each in tops.values()))
        raise JobError(f"{name} can be {many}: write KIND/NAME, and -n NAMESPACE")
    (live,) = tops.values()
    return _job(cluster, live, listed)


def unfinished(cluster: Cluster, namespace: str | None) -> Iterator[Job]:
    """Every job that Kueue knows and that has not ended, by kind, namespace and name."""
    listed = cluster.list([*KINDS.values(), WORKLOADS], namespace)
    waiting = {owner for each in all_workloads(listed) if not is_true(each, "Finished") for owner in _owners(each)}
    found = [each for each in listed if each["metadata"]["uid"] in waiting and each["kind"] in KINDS]
    of_cluster = cluster.list(OF_CLUSTER) if found else ()
    read: dict[str, Sequence[Object]] = {}
    for each in sorted(found, key=named):
        where = each["metadata"]["namespace"]
        if where not in read:
            read[where] = cluster.list(BESIDES, where)
        yield Job(each, listed, read[where], of_cluster)


def _job(cluster: Cluster, live: Object, listed: Sequence[Object]) -> Job:
    return Job(live, listed, cluster.list(BESIDES, live["metadata"]["namespace"]), cluster.list(OF_CLUSTER))


def top(each: Object, listed: Sequence[Object]) -> Object:
    """The job that has made an object, by its controllers: of a pod its Job, of that its JobSet."""
    by_uid: Mapping[str, Object] = {other["metadata"]["uid"]: other for other in listed if other["kind"] in KINDS}
    made_by = next((by_uid[uid] for uid in _owners(each) if uid in by_uid), None)
    if made_by is None and each["kind"] == "Pod":
        # Between a pod and its LeaderWorkerSet are StatefulSets, which are not read.
        group = each["metadata"].get("labels", {}).get(POD_LABELS["LeaderWorkerSet"])
        made_by = next((other for other in by_uid.values() if group and _is_group(other, group, each)), None)
    return top(made_by, listed) if made_by else each


def _is_group(other: Object, name: str, pod: Object) -> bool:
    same = other["metadata"]["namespace"] == pod["metadata"]["namespace"]
    return bool(same and other["kind"] == "LeaderWorkerSet" and other["metadata"]["name"] == name)


def _owners(each: Object) -> list[str]:
    return [owner["uid"] for owner in each["metadata"].get("ownerReferences") or []]


def _subject(event: Object) -> str:
    uid: str = event.get("involvedObject", event.get("regarding", {})).get("uid", "")
    return uid


def _when(event: Object) -> str:
    series = event.get("series") or {}
    moments = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    return str(next((moment for moment in moments if moment), event["metadata"]["creationTimestamp"]))
