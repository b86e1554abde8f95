"""When two strings name the same Google resource."""

from __future__ import annotations

import re

_HOST = re.compile(r"^https?://[^/]+/(?:[a-z]+/)?(?:v\d\w*|beta|alpha)/")
SCOPE_PREFIX = "https://www.googleapis.com/auth/"


def relative(link: str) -> str:
    """A resource link without host, API version and query: `projects/P/global/networks/N`."""
    return _HOST.sub("", link).split("?")[0]


def last(link: str) -> str:
    """The resource's own name, the last segment of its link."""
    return relative(link).rsplit("/", 1)[-1]


def is_link(text: str) -> bool:
    return text.startswith(("projects/", "https://", "http://"))


def scope(name: str) -> str:
    """An OAuth scope in full; the provider takes `cloud-platform` for the URL that ends so."""
    return name if name.startswith("https://") else SCOPE_PREFIX + name


def same(new: str, old: str) -> bool:
    """Whether a given string and what the API made of it name the same thing."""
    if new == old:
        return True
    if old.startswith(SCOPE_PREFIX):
        return scope(new) == old
    if not is_link(old):
        return is_link(new) and "/" not in old and old != "" and last(new) == old
    if is_link(new):
        return relative(new) == relative(old)
    return "/" not in new and new != "" and last(old) == new
