"""What values of options must be whatever the platform: not empty, and of the form that Kubernetes takes."""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from plan.workloads.job import WorkloadError

SECRET = "[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?"
KEY = "[-._a-zA-Z0-9]{1,253}"


class Form(NamedTuple):
    """A regular expression, what it describes, and what to write."""

    pattern: str
    what: str
    instead: str


FORMS = {
    # Only what no image can have is refused: names of registries differ in what they take.
    "--image": Form("[a-zA-Z0-9][-._:/@a-zA-Z0-9]*", "image", "for example us-docker.pkg.dev/P/R/NAME@sha256:DIGEST"),
    "--token": Form(f"{SECRET}(:{KEY})?", "Secret", "write its NAME in lower case, or NAME:KEY"),
    "--certificate": Form(SECRET, "Secret", "write its NAME in lower case"),
}


def check_values(values: Mapping[str, str | None]) -> None:
    """Raises WorkloadError with every value that is empty or has not its option's form. None, for not said, is fine."""
    if found := [problem for flag, value in values.items() if value is not None for problem in _problems(flag, value)]:
        raise WorkloadError("; ".join(found))


def _problems(flag: str, value: str) -> Iterator[str]:
    form = FORMS.get(flag)
    if not value.strip():
        yield f"{flag} is empty: is a variable unset?"
    elif form and not re.fullmatch(form.pattern, value):
        yield f"{flag} {value!r} is no {form.what}: {form.instead}"
