"""What managers and workers of a MultiKueue must satisfy."""

from collections.abc import Iterator

from plan.platform import Platform
from platform_config.multikueue import MOST_WORKERS, REMOTE_KEYS
from rules.registry import PLATFORM, QUEUES, Finding


@PLATFORM.rule(
    "multikueue-role",
    reason="A manager hands all work of its queues to workers; a worker knows nothing of its manager.",
    source="Kueue documentation, MultiKueue: a manager cluster cannot be its own worker",
)
def multikueue_role(platform: Platform) -> Iterator[Finding]:
    settings = platform.multikueue
    if settings is None:
        return
    if settings.role == "worker":
        for key, value in (("workers", settings.workers), ("slices", settings.slices)):
            if value:
                yield Finding(f"multikueue.{key}", "is a setting of managers", "leave it out, or write role: manager")
        return
    if "token" in settings.model_fields_set:
        yield Finding("multikueue.token", "is a setting of workers", "leave it out, and set it in the worker's stack")
    if not settings.workers:
        yield Finding("multikueue.workers", "a manager needs workers", "name at least one cluster")
    if not settings.slices:
        yield Finding("multikueue.slices", "a manager needs slices to share out", "repeat the workers' slices there")
    if platform.slices:
        yield Finding(
            "slices",
            "a manager runs no work itself, so no queue could use these",
            "move them to a worker's stack, and repeat them under multikueue.slices",
        )


@PLATFORM.rule(
    "multikueue-workers",
    reason="Each worker is another cluster, reached in one way; a MultiKueueConfig lists at most 20.",
    source="Kueue v0.19 apis/kueue/v1beta2/multikueue_types.go",
)
def multikueue_workers(platform: Platform) -> Iterator[Finding]:
    workers = platform.multikueue.workers if platform.multikueue else {}
    if len(workers) > MOST_WORKERS:
        yield Finding(
            "multikueue.workers",
            f"{len(workers)} workers; a manager has at most {MOST_WORKERS}",
            "use a second manager for some of them",
        )
    seen: dict[tuple[str, str], str] = {}
    for name, worker in workers.items():
        path = f"multikueue.workers.{name}"
        given = [(key, value) for key, value in (("stack", worker.stack), ("secret", worker.secret)) if value]
        if len(given) != 1:
            yield Finding(
                path,
                "both stack and secret are given" if given else "neither stack nor secret is given",
                "stack: ORGANIZATION/PROJECT/STACK, or secret: NAME for a cluster that is no stack of this program",
            )
            continue
        first = seen.setdefault(given[0], name)
        if first != name:
            key, value = given[0]
            yield Finding(f"{path}.{key}", f"{value} is also worker {first}", "name each cluster once")


@PLATFORM.rule(
    "multikueue-slices",
    reason="A manager only counts slices; the worker's stack describes them in full and creates their node pools.",
    source="this program; fallbacks: a ComputeClass is named after its platform",
)
def multikueue_slices(platform: Platform) -> Iterator[Finding]:
    for name, spec in (platform.multikueue.slices if platform.multikueue else {}).items():
        path = f"multikueue.slices.{name}"
        for key in sorted(spec.model_fields_set - REMOTE_KEYS):
            yield Finding(f"{path}.{key}", "is about node pools, which a manager has none of", "leave it out here")
        if len(spec.capacity) > 1:
            yield Finding(
                f"{path}.capacity",
                "a list is one platform's own order of fallback, which no worker shares",
                "name one model, and describe slices of another as another entry",
            )


@QUEUES.rule(
    "multikueue-queues",
    reason="Work goes from a manager's queue to the queue of that name on a worker.",
    source="Kueue documentation, MultiKueue: namespaces and LocalQueues are the same on manager and workers",
)
def multikueue_queues(platform: Platform) -> Iterator[Finding]:
    if platform.multikueue and not platform.queues:
        role = platform.multikueue.role
        hint = "describe queues, by the same names on the manager and on its workers"
        yield Finding(
            "queues", f"a {role} without queues {'hands out' if role == 'manager' else 'takes'} no work", hint
        )
