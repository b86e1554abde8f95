"""The reference page of the policy pack, made from its rules."""

import json
import sys
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from policies.registry import Rule
from policies.rules import RESOURCE_RULES, STACK_RULES
from tools.page_entry import entry

TITLES = {
    "control_plane": "GKE control planes",
    "cluster": "GKE clusters",
    "maintenance": "Upgrades of GKE",
    "nodes": "GKE nodes",
    "pools": "GKE node pools",
    "slices": "Slices of GKE",
    "machines": "Hosts that are not GKE's",
    "networks": "Networks",
    "firewalls": "Access by address",
    "grants": "Access by role",
    "secrets": "Secrets",
    "kubernetes": "Inside the cluster",
    "rbac": "Rights in the cluster",
    "workloads": "Workloads",
    "queues": "Queues",
    "limits": "Limits and protection",
}


def policies_page(note: str) -> str:
    """docs/policies.md: how to run the pack, every rule, and every setting. `note` says that the page is made."""
    rules: list[Rule[Any]] = [*RESOURCE_RULES, *STACK_RULES]
    mandatory = sum(rule.level == "mandatory" for rule in rules)
    lines = [
        "# Policies",
        "",
        note,
        "",
        f"{len(rules)} rules over planned resources, whoever wrote these; {mandatory} of them are mandatory and end a",
        "preview, the others only speak. The program keeps all mandatory ones by itself, as tests show: the pack is",
        "for edits of the program, for other stacks, and for limits that are yours to set.",
        "",
        *_usage(),
    ]
    order = list(TITLES)
    by_module = sorted(rules, key=lambda rule: order.index(_module(rule)))
    for module, group in groupby(by_module, key=_module):
        lines += ["", f"## {TITLES[module]}", "", _summary(module), ""]
        lines += map(_entry, group)
    lines += ["", "## Settings", "", *_settings(rules)]
    return "\n".join(lines) + "\n"


def _usage() -> Iterator[str]:
    yield from (
        "```console",
        "$ make policies                                              # once: the pack's own Python environment",
        "$ pulumi preview --policy-pack policies -s prod",
        "$ pulumi up --policy-pack policies --policy-pack-config policies.json -s prod",
        "```",
        "",
        "The pack has an environment of its own, because Pulumi's policy SDK needs an older protobuf than the program.",
        "Without make: `python3.11 -m venv policies/.venv`, then install `policies/requirements.txt` in it.",
        "",
        "- Rules about one resource end an update at that resource, rules about the whole stack at its end: let a",
        "  preview come first, as `pulumi up` does by itself, and do not use `--skip-preview`.",
        "- A value that only an update can know is not checked in a preview; the update checks it.",
        "- Not visible to policies are `replaceOnChanges`, `deletedWith`, replacement triggers and hooks; tests of the",
        "  program's own graph hold those. Whether a value is marked secret is not visible either.",
        "- In the sandbox the same command works; it starts the pack by `policies/run`, because the language host",
        "  there starts programs only.",
    )


def _module(rule: Rule[Any]) -> str:
    return str(rule.check.__module__).rpartition(".")[2]


def _summary(module: str) -> str:
    return (sys.modules[f"policies.rules.{module}"].__doc__ or "").strip()


def _entry(rule: Rule[Any]) -> str:
    return entry(rule.id, rule.level, rule.reason, f"**Do:** {rule.remedy}.", f"*Source: {rule.source}.*")


def _settings(rules: list[Rule[Any]]) -> Iterator[str]:
    configurable = [rule for rule in rules if rule.settings]
    yield "What the file of `--policy-pack-config` may hold, with the defaults. Beside them any policy may have an"
    yield "`enforcementLevel`: `advisory`, `mandatory` or `disabled`."
    yield from ("", "| policy | setting | default | meaning |", "|---|---|---|---|")
    for rule in configurable:
        for setting in rule.settings:
            default = f"`{json.dumps(setting.default)}`"
            yield f"| `{rule.id}` | `{setting.name}` | {default} | {setting.schema['description']} |"
    example = {
        "chips-limit": {"maxChips": 256},
        "cost-limit": {"maxUsdPerHour": 1000},
        "allowed-zones": {"zones": ["us-east5-a", "us-east5-b"]},
        "required-labels": {"labels": ["team", "env"]},
        "intranode-visibility": {"enforcementLevel": "mandatory"},
    }
    yield from ("", "```json", json.dumps(example, indent=2), "```")
