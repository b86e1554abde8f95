"""What `init` asks, and what the catalogue offers as answers."""

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any, get_args

from catalogue import topology
from catalogue.generations import GENERATIONS, KNOWN_ZONES, MACHINES, MACHINES_BY_GENERATION, Generation, HostImage
from plan.capacity import CAPACITY_MODELS, OnlyOnGke
from plan.shape import candidates
from plan.words import counted
from platform_config.capacity import MODELS
from platform_config.cluster import GkeCluster
from platform_config.fields import near_name
from platform_config.self_managed import SelfManagedCluster

Answers = dict[str, str]
"""By question, the answer as text; what is not there is unanswered."""

LONGEST_NAME = 22
MOST_SHAPES = 8


@dataclass(frozen=True)
class Question:
    """`text` asks. `offers` gives lines about possible answers, and `default` an answer, from those given so far.

    `needed`: whether the question is asked at all; without it and without a default an answer is optional.
    """

    key: str
    text: str
    offers: Callable[[Answers], Iterator[str]] = lambda answers: iter(())
    default: Callable[[Answers], str | None] = lambda answers: None
    needed: Callable[[Answers], bool] = lambda answers: True

    @property
    def option(self) -> str:
        """The command's option for it."""
        return f"--{self.key.replace('_', '-')}"


def kinds() -> tuple[str, ...]:
    """What the cluster can be: GKE, or Kubernetes of one's own."""
    return tuple(get_args(model.model_fields["kind"].annotation)[0] for model in (GkeCluster, SelfManagedCluster))


def is_gke(answers: Answers) -> bool:
    return answers.get("kind", kinds()[0]) == kinds()[0]


def generations(answers: Answers) -> list[Generation]:
    """The generations that the answers leave: of the zone, if it is known, and of the kind of cluster."""
    zone = answers.get("zone")
    return [
        each
        for each in GENERATIONS.values()
        if (is_gke(answers) or isinstance(each.without_gke, HostImage))
        and (zone not in KNOWN_ZONES or zone in each.zones)
    ]


def generation_of(machine: str) -> Generation | None:
    """The generation of an answer, which names it or a machine type."""
    return MACHINES[machine].generation if machine in MACHINES else GENERATIONS.get(machine)


def _zones(answers: Answers) -> Iterator[str]:
    wanted = generation_of(answers.get("machine", ""))
    offered = [wanted] if wanted else generations({key: each for key, each in answers.items() if key != "zone"})
    for zone in sorted({zone for each in offered for zone in each.zones}):
        yield f"{zone}: {', '.join(each.name for each in offered if zone in each.zones)}"


def _machines(answers: Answers) -> Iterator[str]:
    for generation in generations(answers):
        for machine in MACHINES_BY_GENERATION[generation.name]:
            several = f"one or more hosts of {counted(machine.chips, 'chip')}"
            size = several if machine.multi_host else f"one host of {counted(machine.chips, 'chip')}"
            yield f"{machine.name}: {generation.name}, a slice is {size}"


def shapes(machine: str) -> list[topology.Dims]:
    """The topologies that hosts of a machine type, or of a generation, can form; by number of chips."""
    generation = generation_of(machine)
    if generation is None:
        return []
    return [
        dims
        for dims in topology.shapes(generation)
        if any(machine in (shape.machine.name, generation.name) for shape in candidates(generation, dims))
    ]


def _sizes(answers: Answers) -> Iterator[str]:
    machine = answers.get("machine", "")
    found, generation = shapes(machine), generation_of(machine)
    for dims in found[:MOST_SHAPES]:
        ways = [
            f"{counted(shape.hosts, 'host')} of {shape.machine.name}"
            for shape in candidates(generation, dims)
            if generation and machine in (shape.machine.name, generation.name)
        ]
        yield f"{topology.render(dims)}: {counted(prod(dims), 'chip')}, {' or '.join(ways)}"
    if len(found) > MOST_SHAPES:
        yield f"... up to {topology.render(found[-1])}: {counted(prod(found[-1]), 'chip')}"


def _models(answers: Answers) -> Iterator[str]:
    for name, model in CAPACITY_MODELS.items():
        if is_gke(answers) or not isinstance(model.compute, OnlyOnGke):
            yield f"{name}: {inspect.getdoc(MODELS[name])}"


QUESTIONS = (
    Question("project", "Google Cloud project (its id)"),
    Question(
        "kind", "Kubernetes: gke, or self-managed on Compute Engine", lambda _: iter(kinds()), lambda _: kinds()[0]
    ),
    Question("zone", "Zone of the TPUs", _zones),
    Question("machine", "TPU machine type, or generation", _machines),
    Question("size", "Topology of one slice, or its number of chips", _sizes),
    Question("count", "How many such slices", default=lambda _: "1"),
    Question("capacity", "Capacity", _models),
    Question("reservation", "Name of the reservation", needed=lambda answers: answers.get("capacity") == "reservation"),
    Question("teams", "Teams, separated by commas; each gets a namespace and a queue", default=lambda _: "research"),
    Question(
        "name", "Name of the platform, with which every cloud name begins", default=lambda a: platform_name(a["stack"])
    ),
)
BY_KEY = {question.key: question for question in QUESTIONS}


def platform_name(stack: str) -> str:
    """`tpu-prod`, within the length of a platform's name."""
    return (near_name(f"tpu-{stack}"[:LONGEST_NAME]) or "tpu").strip("-")


def listed(answer: str) -> list[str]:
    """The parts of an answer of several."""
    return [part for part in re.split(r"[,\s]+", answer) if part]


def as_answer(value: Any) -> str:
    """A value of an answers file as the text that a person would type."""
    if isinstance(value, list):
        return ", ".join(map(as_answer, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
