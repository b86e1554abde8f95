"""Registers each rule as a policy of the pack. Only this module uses Pulumi's policy SDK."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from pulumi_policy import (
    EnforcementLevel,
    PolicyConfigSchema,
    PolicyProviderResource,
    PolicyResource,
    ReportViolation,
    ResourceValidationArgs,
    ResourceValidationPolicy,
    StackValidationArgs,
    StackValidationPolicy,
    proxy,
)

from policies.registry import Resource, ResourceCheck, Rule, Stack, StackCheck, explicit
from policies.rules import RESOURCE_RULES, STACK_RULES
from policies.values import UNKNOWN

NAME = "tpu-platform"

# The engine's markers for values that are not known before an update.
UNKNOWN_VALUES = frozenset(
    (
        proxy.UNKNOWN_ARCHIVE_VALUE,
        proxy.UNKNOWN_ARRAY_VALUE,
        proxy.UNKNOWN_ASSET_VALUE,
        proxy.UNKNOWN_BOOLEAN_VALUE,
        proxy.UNKNOWN_NUMBER_VALUE,
        proxy.UNKNOWN_OBJECT_VALUE,
        proxy.UNKNOWN_STRING_VALUE,
    )
)


def policies() -> list[ResourceValidationPolicy | StackValidationPolicy]:
    """Every rule as a policy, under the rule's id."""
    return [*map(_resource_policy, RESOURCE_RULES), *map(_stack_policy, STACK_RULES)]


def _resource_policy(rule: Rule[ResourceCheck]) -> ResourceValidationPolicy:
    def validate(args: ResourceValidationArgs, report: ReportViolation) -> None:
        if not rule.applies_to(args.resource_type):
            return
        for path, message in rule.check(_resource(args), rule.configured(args.get_config())):
            report(rule.wording(path, message))

    return ResourceValidationPolicy(validate=validate, **_common(rule))


def _stack_policy(rule: Rule[StackCheck]) -> StackValidationPolicy:
    def validate(args: StackValidationArgs, report: ReportViolation) -> None:
        stack = Stack(tuple(_of_stack(each) for each in args.resources))
        for urn, path, message in rule.check(stack, rule.configured(args.get_config())):
            report(rule.wording(path, message), urn)

    return StackValidationPolicy(validate=validate, **_common(rule))


def _common(rule: Rule[Any]) -> dict[str, Any]:
    """What resource and stack policies have in common."""
    properties = {setting.name: dict(setting.schema) for setting in rule.settings}
    return {
        "name": rule.id,
        "description": f"{rule.reason} Source: {rule.source}.",
        "enforcement_level": EnforcementLevel(rule.level),
        "config_schema": PolicyConfigSchema(properties) if properties else None,
        "remediation_steps": rule.remedy,
        "tags": [f"CIS GKE {control}" for control in rule.controls],
    }


def _resource(args: ResourceValidationArgs | PolicyResource) -> Resource:
    return Resource(
        type=args.resource_type,
        name=args.name,
        urn=args.urn,
        props=plain(args.props),
        protect=args.opts.protect,
        delete_before_replace=args.opts.delete_before_replace,
        provider=_explicit(args.provider),
    )


def _of_stack(resource: PolicyResource) -> Resource:
    return replace(
        _resource(resource),
        dependencies=tuple(each.urn for each in resource.dependencies),
        property_dependencies={
            name: tuple(each.urn for each in sources) for name, sources in resource.property_dependencies.items()
        },
    )


def _explicit(provider: PolicyProviderResource | None) -> str | None:
    """URN of a provider that the program creates; None for the engine's default providers."""
    return str(provider.urn) if provider is not None and explicit(provider.name) else None


def plain(value: Any) -> Any:
    """A value without the SDK's proxies, which raise on the first unknown value and so end the whole policy."""
    unwrapped: Callable[[str], Any] | None = getattr(value, "__getitem__", None)
    if isinstance(value, str):
        return UNKNOWN if value in UNKNOWN_VALUES else value
    if isinstance(value, Mapping):
        target = value if isinstance(value, dict) else unwrapped("__target")  # type: ignore[misc]
        return {key: plain(each) for key, each in target.items()}
    if unwrapped is not None and hasattr(value, "__len__"):
        target = value if isinstance(value, list) else unwrapped("__target")
        return [plain(each) for each in target]
    return value
