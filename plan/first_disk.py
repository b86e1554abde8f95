"""The description of a control plane's first data disk. It holds the ranges that kubeadm reads once."""

import re

_FORM = "First of a cluster in {subnetwork} with pods {pods}, services {services}"


def description(subnetwork: str, pods: str, services: str) -> str:
    """The description of a first data disk."""
    return _FORM.format(subnetwork=subnetwork, pods=pods, services=services)


def ranges_of(text: str) -> dict[str, str]:
    """`subnetwork`, `pods` and `services` of a description; empty for any other text."""
    pattern = _FORM.format(subnetwork=r"(?P<subnetwork>\S+)", pods=r"(?P<pods>\S+)", services=r"(?P<services>\S+)")
    match = re.fullmatch(pattern, text)
    return match.groupdict() if match else {}
