"""What the sandbox is told of this program, and all that it is told (`sandbox/adapter.py`); pyproject.toml names it."""

import json
from dataclasses import dataclass
from typing import Any, get_args

from rich.table import Table

from plan.charts import CHARTS
from plan.charts import Chart as Row
from plan.provisioning import PROVISIONING, TPU_PROVISIONER
from plan.workloads.job import JAX_IMAGE
from plan.workloads.server import VLLM_IMAGE
from platform_config.software import Software
from sandbox.adapter import Chart, MachineNames, Others, Outputs, Program, SampleJob

# A sample job spans this many slices where its queue has them.
SLICES = 2
# Columns of the table of slices: heading and key of the stack's `slices` output.
SLICE_COLUMNS = (
    ("machine type", "machine_type"),
    ("topology", "topology"),
    ("capacity", "capacity"),
    ("slices", "count"),
    ("hosts each", "hosts_per_slice"),
    ("chips each", "chips_per_slice"),
    ("USD per hour", "group_price_per_hour_usd"),
)


def _chart(row: Row) -> Chart:
    """A chart with every version that a stack file may name."""
    software = Software.model_fields[row.part.replace("-", "_")].annotation
    assert software
    return Chart(row.reference, get_args(software.model_fields["version"].annotation))


@dataclass(frozen=True)
class Choice:
    """What a sample job asks for: so many slices of a group, from a queue."""

    slices: str
    queue: str
    count: int


def choose(outputs: Outputs) -> Choice | None:
    """The queue and slices of the stack's `queues` output that give the widest job. None where no queue owns slices."""
    choices = [
        Choice(slices, name, min(quota, SLICES))
        for name, queue in (outputs.get("queues") or {}).items()
        for slices, quota in queue["slices"].items()
        if quota
    ]
    return max(choices, key=lambda choice: choice.count, default=None)


def workload_command(stack: str, choice: Choice, *more: str) -> tuple[str, ...]:
    """The arguments of Python that print the job's manifest."""
    wanted = ("--queue", choice.queue, "--slices", str(choice.count), "-f", _stack_file(stack))
    return ("-m", "tools", "workload", "train", choice.slices, *wanted, *more)


def _sample_job(stack: str, outputs: Outputs) -> SampleJob | None:
    choice = choose(outputs)
    if choice is None:
        return None
    plan = next(plan for plan in outputs["slices"].values() if plan["group"] == choice.slices)
    return SampleJob(
        workload_command(stack, choice),
        outputs["cluster"]["endpoint"],
        leaves_no_hosts=not PROVISIONING[plan["provisioning"]].declared,
    )


def _destroy(outputs: Outputs) -> tuple[str, ...]:
    """Delete hooks run only with the program (components/kubernetes/left_pools.py)."""
    ways = {plan["provisioning"] for plan in (outputs.get("slices") or {}).values()}
    return ("--run-program",) if TPU_PROVISIONER.name in ways else ()


def _explanation(stack: str) -> tuple[str, ...]:
    return ("-m", "tools", "explain", "-f", _stack_file(stack))


def _stack_file(stack: str) -> str:
    return f"Pulumi.{stack}.yaml"


def tables(outputs: Outputs) -> tuple[Table, Table]:
    """How to reach the cluster; one row for each group of slices."""
    cluster = Table(show_header=False, box=None)
    for key, value in (outputs.get("cluster") or {}).items():
        cluster.add_row(key, _cell(value))
    slices = Table("slices", *(heading for heading, _ in SLICE_COLUMNS))
    for name, plan in (outputs.get("slices") or {}).items():
        slices.add_row(name, *(_cell(plan.get(key)) for _, key in SLICE_COLUMNS))
    return cluster, slices


def _cell(value: Any) -> str:
    if value is None:
        return "unknown"
    return value if isinstance(value, str) else json.dumps(value)


PROGRAM = Program(
    charts=tuple(map(_chart, CHARTS)),
    # As in plan/hosts.py, components/compute/bootstrap and components/kubernetes/device_plugin.py.
    machines=MachineNames(
        attribute_prefix="tpu-",
        data_disk="data",
        deployer="tpu-platform-deployer",
        own_node="tpu-platform:own-node",
        device_plugin="tpu-device-plugin",
    ),
    explain=_explanation,
    tables=tables,
    job=_sample_job,
    images={
        JAX_IMAGE: "sandbox/jax:1",
        VLLM_IMAGE: "sandbox/vllm:1",
        # The device plugin runs beside the kubelet of a real host: its own pod only has to be there.
        "gcr.io/gke-release/tpu-device-plugin:1.35.7-gke.0": "sandbox/pause:1",
        "gcr.io/gke-release/vbar_control_agent@sha256:"
        "450e948cfa0b0db0c0136138f96da19589635409e6eb790b80fcaee3ffc6cd75": "sandbox/pause:1",
    },
    destroy=_destroy,
    # As in Pulumi.team.yaml.
    others=Others(
        project="my-project",
        buckets={"acme-c4": "us-east5"},
        secrets={"hf-token": "hf_sandbox"},
    ),
)
