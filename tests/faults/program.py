"""The campaign's `__main__.py`: the real program, with one input of each resource changed.

`edit.json` beside it has the input by type; the variable FAULTS_EDIT is what is written there, a number. Without the
variable nothing is changed.
"""

import json
import os
import re
import runpy
from pathlib import Path
from typing import Any

import pulumi

HERE = Path(__file__).parent
PROPERTIES: dict[str, str] = json.loads((HERE / "edit.json").read_text())
EDIT = os.environ.get("FAULTS_EDIT", "")
MARK = "faults-edit"


def changed(args: pulumi.ResourceTransformationArgs) -> pulumi.ResourceTransformationResult | None:
    """The inputs of a resource, one of them changed."""
    name = PROPERTIES.get(args.type_)
    if name is None:
        return None
    props: dict[str, Any] = dict(args.props)
    first, _, rest = name.partition(".")
    key = next((each for each in (first, snake(first)) if each in props), snake(first))
    if rest and not isinstance(props[key], dict | pulumi.Output):  # typed arguments
        setattr(props[key], rest, edited(getattr(props[key], rest), MARK))
    else:
        props[key] = edited(props.get(key), first, rest)
    return pulumi.ResourceTransformationResult(props, args.opts)


def edited(value: Any, name: str, rest: str = "") -> Any:
    """An input after the edit; what is known stays known."""
    if isinstance(value, pulumi.Output):
        return value.apply(lambda known: new_value(known, name, rest))
    return new_value(value, name, rest)


def snake(name: str) -> str:
    return re.sub(r"(?=[A-Z])", "_", name).lower()


def new_value(value: Any, name: str, rest: str) -> Any:
    """What an input becomes; `rest`: below which key of it."""
    if rest:
        inner = dict(value or {})
        return {**inner, rest: {**(inner.get(rest) or {}), MARK: EDIT}}
    if name == MARK or name.lower().endswith("labels"):
        return {**(value or {}), MARK: EDIT}
    if name == "dashboardJson":
        return json.dumps({**json.loads(value), "labels": {MARK: EDIT}})
    if name == "networkFirewallPolicyEnforcementOrder":
        return "BEFORE_CLASSIC_FIREWALL"  # the default is AFTER
    if name in ("tcpEstablishedIdleTimeoutSec", "maxHistory"):
        return 10 + int(EDIT)
    return f"{value or ''} ({EDIT})".strip()


if EDIT:
    pulumi.runtime.register_stack_transformation(changed)
runpy.run_path(str(HERE / "platform_main.py"), run_name="__main__")
