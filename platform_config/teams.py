"""Teams in the stack file: who they are, where their data lies, which secrets their pods get."""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from platform_config.fields import PROJECT, Count, Flag, Model, Name, refusal, text

_ADDRESS = r"[a-z0-9][a-z0-9._%+-]{0,63}@[a-z0-9][a-z0-9.-]{0,251}\.[a-z]{2,24}"
ACCOUNTS = ".gserviceaccount.com"
"""With this the addresses of service accounts end."""


def _near_member(value: str) -> str | None:
    """An address with the prefix that its domain, or a person, has."""
    if re.fullmatch(_ADDRESS, value.lower()):
        prefixes = ["serviceAccount"] if value.lower().endswith(ACCOUNTS) else ["user", "group"]
        return " or ".join(f"{prefix}:{value.lower()}" for prefix in prefixes)
    return None


_MEMBER_CHECK, _MEMBER_SCHEMA = text(
    rf"(group|user|serviceAccount):{_ADDRESS}",
    "a member in IAM's spelling, in lower case",
    "group:research@example.com, user:eva@example.com or serviceAccount:ci@my-project.iam.gserviceaccount.com",
    _near_member,
)
Member = Annotated[str, _MEMBER_CHECK, _MEMBER_SCHEMA]
"""Somebody in a team: a Google group, a person or a service account."""

BUCKET_NAME = "[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]"
_BUCKET_CHECK, _BUCKET_SCHEMA = text(BUCKET_NAME, "the name of a bucket", "its name without gs://, for example acme-c4")
BucketName = Annotated[str, _BUCKET_CHECK, _BUCKET_SCHEMA]
"""A Cloud Storage bucket, by its name."""

_DISK_CHECK, _DISK_SCHEMA = text(
    "[a-z]([-a-z0-9]{0,61}[a-z0-9])?", "the name of a disk", "its name alone, for example gemma-weights"
)
DiskName = Annotated[str, _DISK_CHECK, _DISK_SCHEMA]
"""A disk of Compute Engine, by its name."""

_MOUNT_CHECK, _MOUNT_SCHEMA = text(
    "(/[A-Za-z0-9_][A-Za-z0-9._-]{0,62}){1,8}", "a path in a container", "an absolute path, for example /data"
)
MountPath = Annotated[str, _MOUNT_CHECK, _MOUNT_SCHEMA]

_DAYS_CHECK, _DAYS_SCHEMA = text("[1-9][0-9]{0,4}d", "a number of days", "a whole number and a d, for example 30d")
Days = Annotated[str, _DAYS_CHECK, _DAYS_SCHEMA]

# No underscore in first, second or last place, and no two in a row: the add-on takes no other name of a key.
_VARIABLE_CHECK, _VARIABLE_SCHEMA = text(
    "[A-Za-z]([A-Za-z0-9](_?[A-Za-z0-9])*)?",
    "an environment variable that secret sync of GKE takes",
    "for example HF_TOKEN: letters, digits, and single underscores from the third place on",
)
Variable = Annotated[str, Field(max_length=63), _VARIABLE_CHECK, _VARIABLE_SCHEMA]

_SECRET = rf"(projects/{PROJECT}/secrets/)?[A-Za-z0-9_-]{{1,255}}"
_TOKEN = re.compile(r"(hf_|gh[opsru]_|github_pat_|xox[abp]-|sk-|AIza|ya29\.|eyJ)[A-Za-z0-9._-]{20}")
"""Tokens and keys that people hold, of Hugging Face, GitHub, Slack, OpenAI and Google, and JSON Web Tokens."""
_SECRET_HINT = "for example hf-token, or projects/PROJECT/secrets/hf-token for a secret of another project"


def _secret_entry(written: str) -> str:
    """The name of a secret. No message has what is written, since people write the value by mistake."""
    if _TOKEN.match(written):
        raise refusal(
            "looks like the value of a secret, and would be read by all who can read the stack file",
            "write the name of an entry in Secret Manager, for example hf-token, and make a new value: this one was in"
            " a file",
        )
    if not re.fullmatch(_SECRET, written):
        raise refusal("is not the name of a secret in Secret Manager", _SECRET_HINT)
    return written


SecretEntry = Annotated[str, AfterValidator(_secret_entry), Field(json_schema_extra={"pattern": f"^(?:{_SECRET})$"})]
"""An entry of Secret Manager: its name, or its full name where another project has it."""


class Store(Model):
    """A place for a team's data: a bucket that the platform makes, a bucket that exists, or a disk that exists."""

    bucket: BucketName | None = None
    """A bucket that exists: it is granted, never changed or deleted. A new bucket if unset."""
    disk: DiskName | None = None
    """A Hyperdisk ML disk that exists in the platform's zone, which many hosts read; with mount, and no other key."""
    mode: Literal["write", "read"] | None = None
    """Rights of the team's members and pods; write for a new bucket, read for an existing one if unset."""
    mount: MountPath | None = None
    """Path at which jobs of `python -m tools workload` find it as files; none: they get the gs:// address."""
    use: Literal["data", "checkpoints", "models"] | None = None
    """What the files are, which decides the mount options; data for mode read, checkpoints for mode write if unset."""
    soft_delete: Flag = True
    """Keep deleted objects of a new bucket for seven days, at the price of stored ones."""
    expire: Days | None = None
    """Delete objects of a new bucket at this age; never if unset."""
    keep: Flag = True
    """Leave a new bucket and its objects where they are when the store, the team or the platform is deleted."""


class Team(Model):
    """A team: a namespace of its own name, and what its members and pods may do and use."""

    members: tuple[Member, ...] = ()
    """Who works in the namespace: submit jobs, see their logs, use the team's storage."""
    storage: dict[Annotated[Name, Field(max_length=40)], Store] = {}
    """Buckets and disks of the team, by a name of your choice."""
    secrets: dict[Variable, SecretEntry] = {}
    """Environment variables of the team's jobs, each with its entry in Secret Manager."""
    load_balancers: Count = 0
    """Most Services of type LoadBalancer, and most Ingresses, in the namespace; with 0 no Service of type NodePort."""
