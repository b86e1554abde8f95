"""Names of buckets: no two stores of any platforms share one."""

import re
from dataclasses import dataclass, field
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plan.platform import Platform
from plan.storage import bucket_name

# Short names of few letters, so that many tries meet names that differ only in where a hyphen belongs.
NAMES = st.from_regex(r"[ab]([ab-]{0,3}[ab])?", fullmatch=True)
PROJECTS = st.one_of(NAMES, st.from_regex(r"[ab]([ab-]{0,2}[ab])?(\.[ab]){1,2}:[ab]([ab-]{0,2}[ab])?", fullmatch=True))


@dataclass(frozen=True)
class Named:
    """What a bucket's name follows from, of a platform."""

    project: str
    name: str = field(default="tpu")


def name_of(project: str, platform: str, team: str, store: str) -> str:
    return bucket_name(cast(Platform, Named(project, platform)), team, store)


STORES = st.tuples(PROJECTS, NAMES, NAMES, NAMES)


@settings(max_examples=300)
@given(first=STORES, second=STORES)
def test_two_stores_have_two_buckets(first: tuple[str, str, str, str], second: tuple[str, str, str, str]) -> None:
    assert (name_of(*first) == name_of(*second)) == (first == second)


@given(store=STORES)
def test_a_buckets_name_says_whose_it_is(store: tuple[str, str, str, str]) -> None:
    """Hence no two stores can share one."""
    *_, platform, team, name = name_of(*store).split("_")
    assert (platform, team, name) == store[1:]
    assert re.fullmatch("[a-z0-9][a-z0-9_-]*[a-z0-9]", name_of(*store))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("p", "one", "a-b", "d"), ("p", "one-a", "b", "d")),
        (("p", "one", "a", "b-d"), ("p", "one", "a-b", "d")),
        (("p-one", "a", "b", "d"), ("p", "one-a", "b", "d")),
        (("a.b:p", "one", "a", "d"), ("a-b-p", "one", "a", "d")),
    ],
)
def test_a_hyphen_belongs_to_a_name(first: tuple[str, str, str, str], second: tuple[str, str, str, str]) -> None:
    """Platform `one` with team `a-b` and platform `one-a` with team `b` had the same bucket."""
    assert name_of(*first) != name_of(*second)
