"""Registries of container images in the stack file."""

from typing import Annotated, Literal

from platform_config.fields import PROJECT, Model, Name, text

_REPOSITORY_CHECK, _REPOSITORY_SCHEMA = text(
    rf"projects/{PROJECT}/locations/[a-z0-9-]+/repositories/[a-z]([a-z0-9-]{{0,61}}[a-z0-9])?",
    "the full name of a repository in Artifact Registry",
    "projects/PROJECT/locations/LOCATION/repositories/NAME",
)
RepositoryName = Annotated[str, _REPOSITORY_CHECK, _REPOSITORY_SCHEMA]


class ImageRepository(Model):
    """A repository of container images in Artifact Registry: hosts and members of teams pull from it."""

    mirror: Literal["docker-hub"] | None = None
    """Public registry that the repository fetches images from and keeps them; members then pull only."""
    repository: RepositoryName | None = None
    """A repository that exists: hosts may pull from it, and nothing else changes. A new one if unset."""
    teams: tuple[Name, ...] | None = None
    """Teams whose members push to a new repository; the only team that has members if unset, and nobody if empty."""
