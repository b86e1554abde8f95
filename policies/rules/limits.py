"""Limits of a whole stack: chips, cost, zones, generations; and protection against loss."""

from collections import defaultdict
from collections.abc import Iterator

from catalogue.generations import GENERATIONS
from catalogue.labels import FLAVOR_LABEL
from plan.flavors import RESOURCES
from plan.words import counted
from policies import tokens
from policies.capacity import capacity
from policies.registry import (
    PRODUCTION,
    RESOURCE,
    STACK,
    Resource,
    Setting,
    Settings,
    Stack,
    StackFinding,
    in_production,
)
from policies.rules.queues import flavors_of
from policies.tpu import may_have_tpus, pairs, pool_machine, template_machine, template_of, zones
from policies.values import UNKNOWN, Finding, at, expect, items, mapping, number, text

CLOUD_LABELS = {
    tokens.CLUSTER: "resourceLabels",
    tokens.NODE_POOL: "nodeConfig.resourceLabels",
    **dict.fromkeys((*tokens.TEMPLATES, tokens.INSTANCE, *tokens.DERIVED_INSTANCES, tokens.TPU_VM), "labels"),
    tokens.DISK: "labels",
    tokens.BUCKET: "labels",
    tokens.SECRET: "labels",
}

TPU_API = (tokens.TPU_VM, tokens.QUEUED_RESOURCE)

MOST_CHIPS = Setting(
    "maxChips", {"type": "integer", "minimum": 0, "default": 1024, "description": "Chips a stack may have at most."}
)
MOST_COST = Setting(
    "maxUsdPerHour",
    {
        "type": "number",
        "minimum": 0,
        "default": 5000,
        "description": "What a stack's chips may cost an hour, when all run, by list price.",
    },
)


PRICES = Setting(
    "prices",
    {
        "type": "object",
        "additionalProperties": {"type": "number", "minimum": 0},
        "default": {},
        "description": "USD for a chip-hour, by generation; list prices where it says nothing.",
    },
)


def _names(name: str, description: str) -> Setting:
    schema = {"type": "array", "items": {"type": "string"}, "default": [], "description": description}
    return Setting(name, schema)


ZONES = _names("zones", "Zones that hosts may be in; empty allows all.")
ALLOWED_GENERATIONS = _names("generations", f"Of {', '.join(GENERATIONS)}; empty allows all.")
LABELS = _names("labels", "Google Cloud labels that everything carries that can, for example team, env, cost-center.")


@STACK.rule(
    "chips-limit",
    reason="A wrong topology or count can mean thousands of chips; pools, groups at their largest, single machines and"
    " TPU VMs are added up, each with the template that it refers to.",
    remedy="Make the plan smaller, or raise maxChips in the policy's configuration",
    source="this project; pulumi-policy configuration",
    settings=[MOST_CHIPS],
)
def chips_limit(stack: Stack, settings: Settings) -> Iterator[StackFinding]:
    chips, most = sum(each.chips for each in capacity(stack)), settings[MOST_CHIPS.name]
    if chips > most:
        yield StackFinding(None, "", f"the stack has {counted(chips, 'chip')} when all run; {most:,.0f} are allowed")


@STACK.rule(
    "cost-limit",
    reason="Slices bill from their first minute, also while they wait for work; what chips-limit adds up is priced.",
    remedy="Make the plan smaller, or raise maxUsdPerHour in the policy's configuration",
    source="list prices as GKE's autoscaler ranks them; an estimate, not a bill",
    settings=[MOST_COST, PRICES],
)
def cost_limit(stack: Stack, settings: Settings) -> Iterator[StackFinding]:
    prices, most = settings[PRICES.name], settings[MOST_COST.name]
    cost = sum(each.usd_per_hour(prices) or 0 for each in capacity(stack))
    if cost > most:
        words = f"the stack's chips cost about {cost:,.0f} USD an hour when all run; {most:,.0f} are allowed"
        yield StackFinding(None, "", words)


@STACK.rule(
    "price-unknown",
    level="advisory",
    reason="The cost limit does not count chips without a price.",
    remedy="Give your price under prices of cost-limit and of this policy, or keep the chips limit low",
    source="cluster-autoscaler price table",
    settings=[PRICES],
)
def price_unknown(stack: Stack, settings: Settings) -> Iterator[StackFinding]:
    unpriced = (each for each in capacity(stack) if each.usd_per_hour(settings[PRICES.name]) is None)
    # Machine types that the catalogue does not know are refused by tpu-machine and vm-tpu-machine.
    for name in sorted({each.kind for each in unpriced if each.generation or each.resource.type in TPU_API}):
        yield StackFinding(None, "", f"the price of {name} is not known")


@RESOURCE.rule(
    "allowed-zones",
    tokens.CLUSTER,
    tokens.NODE_POOL,
    *tokens.MIGS,
    tokens.INSTANCE,
    *tokens.DERIVED_INSTANCES,
    tokens.TPU_VM,
    tokens.QUEUED_RESOURCE,
    reason="Data location, quota and latency depend on the zone, so somebody must choose it.",
    remedy="Use one of the allowed zones, or add this one to the policy's configuration",
    source="this project; pulumi-policy configuration",
    settings=[ZONES],
)
def allowed_zones(resource: Resource, settings: Settings) -> Iterator[Finding]:
    allowed = settings[ZONES.name]
    for zone in zones(resource.props):
        if allowed and zone not in allowed:
            yield Finding("", f"is in {zone}; allowed are {', '.join(allowed)}")


@RESOURCE.rule(
    "allowed-generations",
    tokens.NODE_POOL,
    *tokens.TEMPLATES,
    tokens.INSTANCE,
    *tokens.DERIVED_INSTANCES,
    reason="Generations differ in price, quota and support; a project decides which it runs.",
    remedy="Use one of the allowed generations, or add this one to the policy's configuration",
    source="this project; pulumi-policy configuration",
    settings=[ALLOWED_GENERATIONS],
)
def allowed_generations(resource: Resource, settings: Settings) -> Iterator[Finding]:
    path = "nodeConfig.machineType" if resource.type == tokens.NODE_POOL else "machineType"
    machine = template_machine(resource) if path == "machineType" else pool_machine(resource)
    allowed = settings[ALLOWED_GENERATIONS.name]
    if machine and allowed and machine.generation.name not in allowed:
        yield Finding(path, f"is of {machine.generation.name}; allowed are {', '.join(allowed)}")


@RESOURCE.rule(
    "required-labels",
    *CLOUD_LABELS,
    reason="Without labels nobody can assign the cost later.",
    remedy="Add the labels; in a stack file they are labels of the platform",
    source="Google Cloud documentation, labels for cost allocation",
    settings=[LABELS],
)
def required_labels(resource: Resource, settings: Settings) -> Iterator[Finding]:
    path = CLOUD_LABELS[resource.type]
    if at(resource.props, path) is UNKNOWN:
        return
    labels = mapping(resource.props, path)
    missing = [label for label in settings[LABELS.name] if label not in labels]
    if missing:
        yield Finding(path, f"lacks {', '.join(missing)}")


@STACK.rule(
    "tpu-zone-offers",
    level="advisory",
    reason="A zone that does not offer the generation never gives hosts, and the update waits for hours.",
    remedy="Ask `gcloud compute machine-types list`, or take a zone from docs/topologies.md",
    source="Cloud TPU documentation, regions and zones; not exhaustive",
)
def tpu_zone_offers(stack: Stack, settings: Settings) -> Iterator[StackFinding]:
    for each in capacity(stack):
        for zone in zones(each.resource.props):
            if each.generation and zone not in each.generation.zones:
                words = f"{zone} is not known to offer {each.kind}"
                yield StackFinding(each.resource.urn, "", words)


IRREPLACEABLE = (tokens.CLUSTER, tokens.NODE_POOL, *tokens.MIGS, tokens.DISK)


@STACK.rule(
    "production-protected",
    reason="A plan may replace the cluster, a slice or the disk that etcd lies on, and nobody gets them back.",
    remedy="Set the option protect; in a stack file it is protect: true. For planned work use --target-replace",
    source="Pulumi documentation, protect; GKE deletionProtection does not save node pools",
    settings=[PRODUCTION],
)
def production_protected(stack: Stack, settings: Settings) -> Iterator[StackFinding]:
    for resource in stack.of_type(*IRREPLACEABLE):
        if in_production(resource, settings) and _holds_capacity(stack, resource) and not resource.protect:
            yield StackFinding(resource.urn, "", "is not protected")


def _holds_capacity(stack: Stack, resource: Resource) -> bool:
    """Whether the loss of the resource is more than a restart; false for pools and groups without TPUs."""
    return resource.type not in (tokens.NODE_POOL, *tokens.MIGS) or may_have_tpus(stack, resource)


@RESOURCE.rule(
    "deletion-protection",
    tokens.CLUSTER,
    tokens.INSTANCE,
    reason="Pulumi's protection does not stop a deletion by console or gcloud.",
    remedy="Set deletionProtection: true where the option protect is set",
    source="GKE and Compute Engine APIs, deletionProtection",
)
def deletion_protection(resource: Resource, settings: Settings) -> Iterator[Finding]:
    if resource.protect:
        unset_is_fine = resource.type == tokens.CLUSTER  # the provider's default is true there
        yield from expect(resource.props, "deletionProtection", True, or_unset=unset_is_fine)


@RESOURCE.rule(
    "delete-before-replace",
    tokens.CLUSTER,
    tokens.NODE_POOL,
    *tokens.MIGS,
    reason="A new slice cannot come before the old one goes: its name is taken, and so is its capacity.",
    remedy="Set the option deleteBeforeReplace: true",
    source="pulumi-terraform-bridge; GKE API: 409 already exists",
)
def delete_before_replace(resource: Resource, settings: Settings) -> Iterator[Finding]:
    # With a fixed name the provider deletes first, unless the option says otherwise.
    if resource.delete_before_replace is False:
        yield Finding("", "would be replaced by a second one beside it")


@STACK.rule(
    "queue-quota",
    level="advisory",
    reason="Quota beyond the chips there are lets Kueue admit work that finds no host.",
    remedy="Lower nominalQuota, or say overcommit: true and accept that the rest waits",
    source="Kueue documentation, ClusterQueue quotas",
)
def queue_quota(stack: Stack, settings: Settings) -> Iterator[StackFinding]:
    quota: dict[str, int] = defaultdict(int)
    for queue in stack.matching(tokens.CLUSTER_QUEUE):
        for flavor in flavors_of(queue):
            quota[text(flavor, "name")] += _tpu_quota(flavor)
    chips: dict[str, int] = defaultdict(int)
    for each in capacity(stack):
        chips[_flavor_of(stack, each.resource)] += each.chips
    local = {text(flavor.props, "metadata.name") for flavor in stack.matching(tokens.RESOURCE_FLAVOR)}
    for name in sorted(quota.keys() & local):
        if name in chips and quota[name] > chips[name]:
            yield StackFinding(
                None, "", f"queues own {counted(quota[name], 'chip')} of {name}; there are {chips[name]}"
            )


def _tpu_quota(flavor: object) -> int:
    resources = items(flavor, "resources")
    return sum(number(each, "nominalQuota") or 0 for each in resources if text(each, "name") in RESOURCES.values())


def _flavor_of(stack: Stack, resource: Resource) -> str:
    """The Kueue flavor that hosts of a pool or group are labelled with."""
    if resource.type == tokens.NODE_POOL:
        return str(mapping(resource.props, "nodeConfig.labels").get(FLAVOR_LABEL, ""))
    template = template_of(stack, resource)
    return pairs(text(mapping(template.props, "metadata"), "tpu-node-labels")).get(FLAVOR_LABEL, "") if template else ""
