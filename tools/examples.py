"""Manifests that fit each shipped stack, to read and apply: `examples/STACK/`.

Each is what `python -m tools workload` prints for a question that people have, with a comment that says which.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from plan.images import mirror_of
from plan.platform import Platform
from plan.queues import slices_in_reach
from plan.slices import SlicePlan
from plan.storage import mounted
from plan.workloads.job import Job, Manifest
from plan.workloads.jobset import jobset
from plan.workloads.plain_job import plain_job
from plan.workloads.server import VLLM_IMAGE, Server, inference_server, service_name
from rules.load import load_stack_file
from tools.generated import ROOT, Generated
from tools.workload_manifests import as_yaml

STACKS = tuple(sorted(path.name.split(".")[1] for path in ROOT.glob("Pulumi.*.yaml")))
CHECKPOINTS = "CHECKPOINTS"
OPEN_MODEL = "Qwen/Qwen2.5-1.5B-Instruct"
"""A model that needs no token."""
# Fits a straight line. What matters: every process takes part, the first writes checkpoints, and all begin with the
# newest that there is. It needs JAX and numpy only.
TRAINING = f"""
import os, pathlib
import jax, numpy
from jax.experimental.multihost_utils import process_allgather

jax.distributed.initialize()
print("process", jax.process_index(), "of", jax.process_count(), "with", jax.device_count(), "devices", flush=True)
folder = os.environ.get("{CHECKPOINTS}")
newest = pathlib.Path(folder, "newest.npy") if folder else None
weights = numpy.load(newest) if newest and newest.exists() else numpy.zeros(3)  # steps done, slope, intercept
random = numpy.random.default_rng(jax.process_index())
while weights[0] < 100:
    x = random.uniform(-1, 1, 256)
    error = weights[1] * x + weights[2] - (3 * x + 1)
    mine = jax.numpy.array([-1.0, (error * x).mean(), error.mean()])
    weights = weights - process_allgather(mine).reshape(-1, 3).mean(axis=0) * [1, 0.5, 0.5]
    if newest and weights[0] % 20 == 0 and jax.process_index() == 0:
        numpy.save(newest, weights)
print("slope", weights[1], "intercept", weights[2], flush=True)
raise SystemExit(0 if abs(weights[1:] - [3, 1]).max() < 0.01 else 1)
""".strip()


@dataclass(frozen=True)
class Example:
    """A file with a question, what is to know, and the manifests that answer it. `endless`: it runs until deleted."""

    name: str
    about: str
    manifests: tuple[Manifest, ...]
    endless: bool = False


def examples(platform: Platform) -> Iterator[Example]:
    """All of a platform: for the first queue that owns slices, and its first group or its widest. None without one."""
    queue = next((name for name, each in platform.queues.items() if any(each.slices.values())), None)
    if queue is None:
        return
    owned = {group: count for group, count in platform.queues[queue].slices.items() if count}
    plans = {plan.group: plan for plan in reversed(platform.shared_plans)}
    first, widest = next(iter(owned)), max(owned, key=lambda group: owned[group] * plans[group].hosts)
    namespace = platform.queues[queue].namespaces[0]
    yield _hello(platform, plans[first], Job("hello", namespace, 1, queue))
    single = next((group for group in owned if not plans[group].multi_host), None)
    if single and not platform.job_plans:
        yield _plain(platform, plans[single], Job("plain", namespace, 1, queue))
    if owned[widest] * plans[widest].hosts > 1:
        yield _training(platform, plans[widest], Job("train", namespace, owned[widest], queue))
    if single and plans[single].provisioning.serves:
        yield _serving(
            platform, plans[single], Job("serve", namespace, 1, queue, image=mirror_of(platform, VLLM_IMAGE))
        )
    most = slices_in_reach(platform, queue, plans[widest])
    yield _batch(platform, plans[widest], Job("", namespace, most, queue))
    yield _debug(platform, plans[first], Job("debug", namespace, 1, queue))


def _hello(platform: Platform, plan: SlicePlan, job: Job) -> Example:
    about = "Are the chips there? One slice, on which JAX counts its devices. The job fails if one is missing."
    return Example("hello", about, (jobset(platform, plan, replace(job, restarts=0)),))


def _plain(platform: Platform, plan: SlicePlan, job: Job) -> Example:
    about = "The same without JobSet: a plain Job with one pod. Slices of several hosts need a JobSet."
    return Example("plain-job", about, (plain_job(platform, plan, replace(job, restarts=0)),))


def _training(platform: Platform, plan: SlicePlan, job: Job) -> Example:
    store = next((store for store in mounted(platform, job.namespace) if store.access == "write"), None)
    where = (
        f"It writes checkpoints to {store.spec.mount}, and begins with the newest after a restart."
        if store
        else f"Namespace {job.namespace} has no bucket, so a restart begins anew: docs/storage.md says how to get one."
    )
    about = f"Training on {plan.hosts * job.slices} hosts of {job.slices} slice{'s' * (job.slices > 1)}. {where}"
    environment = {CHECKPOINTS: store.spec.mount} if store and store.spec.mount else {}
    asked = replace(job, command=("python", "-c", TRAINING), environment=environment)
    return Example("train", about, (jobset(platform, plan, asked),))


def _serving(platform: Platform, plan: SlicePlan, job: Job) -> Example:
    about = (
        f"A vLLM server of an open model, and a Service inside the cluster: kubectl -n {job.namespace} port-forward "
        f"service/{service_name(job)} 8000. Its queue counts its chips until it is deleted."
    )
    server = Server(job, OPEN_MODEL)
    return Example("serve", about, tuple(inference_server(platform, plan, server)), endless=True)


def _batch(platform: Platform, plan: SlicePlan, job: Job) -> Example:
    """Two jobs that want everything the queue can have; by priority if there are several."""
    ranked = sorted(platform.priorities, key=lambda name: platform.priorities[name])
    low, high = (ranked[0], ranked[-1]) if len(ranked) > 1 else (None, None)
    order = f"The second has priority {high} and preempts the first." if high else "The second waits for the first."
    about = (
        f"Two jobs that each want every slice that queue {job.queue} can have. {order} `python -m tools why` says so."
    )
    jobs = (replace(job, name="batch-1", priority=low), replace(job, name="batch-2", priority=high))
    return Example("batch", about, tuple(jobset(platform, plan, each) for each in jobs))


def _debug(platform: Platform, plan: SlicePlan, job: Job) -> Example:
    about = (
        f"A slice to look around in for an hour: kubectl -n {job.namespace} exec -it POD -- bash. "
        "It is a job, because pods with chips that no job has made are refused in namespaces of a queue."
    )
    asked = replace(job, command=("sleep", "3600"), restarts=0, keep_seconds=0)
    return Example("debug", about, (jobset(platform, plan, asked),), endless=True)


def has_own_pools(platform: Platform) -> bool:
    """Whether the program declares every node pool.

    Then `tests/sandbox/test_kubernetes_examples.py` runs all examples. Of other stacks `test_engine_on_demand.py`
    runs `train`, and shows the rest to the API server.
    """
    return all(plan.provisioning.declared for plan in platform.slice_plans)


def text(stack: str, example: Example, *, tried: bool) -> str:
    """The file: what it answers, how to apply it, the manifests."""
    path = f"examples/{stack}/{example.name}.yaml"
    known = "Tried in the sandbox." if tried else "In the sandbox the API server takes it; it has not run."
    made = f"Made by `python -m tools examples --write`. {known}"
    lines = [*_wrapped(example.about), f"kubectl apply -f {path}", made]
    return "".join(f"# {line}\n" for line in lines) + as_yaml(example.manifests)


def _wrapped(sentence: str) -> Iterator[str]:
    line = ""
    for word in sentence.split(" "):
        if len(line) + len(word) > 116:
            yield line
            line = ""
        line = f"{line} {word}".strip()
    yield line


def files() -> list[Generated]:
    """The files of every shipped stack."""
    made = []
    for stack in STACKS:
        platform = load_stack_file(ROOT / f"Pulumi.{stack}.yaml")
        for example in examples(platform):
            made.append(
                Generated(
                    f"examples/{stack}/{example.name}.yaml",
                    partial(text, stack, example, tried=has_own_pools(platform) or example.name == "train"),
                )
            )
    return made


def left_over(made: list[Generated]) -> list[Path]:
    """Files in the folders of `examples` that no stack has any more."""
    known = {ROOT / each.path for each in made}
    return sorted(path for path in (ROOT / "examples").glob("*/**/*") if path.is_file() and path not in known)
