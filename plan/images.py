"""What follows from registries of images: names, addresses, roles."""

from dataclasses import dataclass

from plan.platform import Platform
from plan.teams import all_members
from platform_config.images import ImageRepository

PULL, PUSH = "roles/artifactregistry.reader", "roles/artifactregistry.writer"
REPOSITORY_NAME_LIMIT = 63


@dataclass(frozen=True)
class ImagePlan:
    """A repository of images. `made`: whether the platform makes it; `mirror`: of which public registry, if any;
    `pushers`: teams whose members may push, by name."""

    name: str
    project: str
    location: str
    repository: str
    made: bool
    mirror: str | None
    pushers: tuple[str, ...] = ()

    @property
    def address(self) -> str:
        """Prefix of its images' names."""
        return f"{self.location}-docker.pkg.dev/{self.project.replace(':', '/')}/{self.repository}"


def member_roles(platform: Platform, plan: ImagePlan) -> dict[str, str]:
    """IAM member -> role, for members of all teams; none for a repository that exists, which is another's to grant.

    Who pushes can move a tag, and jobs that pull it run what is there then: so only the repository's own teams push.
    """
    if not plan.made:
        return {}
    pushing = {written for team in plan.pushers for written in platform.teams[team].members}
    return {member.written: PUSH if member.written in pushing else PULL for member in all_members(platform)}


def teams_with_members(platform: Platform) -> tuple[str, ...]:
    """Teams of somebody, who could push, by name."""
    return tuple(name for name in sorted(platform.teams) if platform.teams[name].members)


def repositories(platform: Platform) -> tuple[ImagePlan, ...]:
    """Every repository, by name."""
    return tuple(_plan(platform, name) for name in sorted(platform.images))


def _plan(platform: Platform, name: str) -> ImagePlan:
    spec = platform.images[name]
    if spec.repository is None:
        pushers = () if spec.mirror else _pushers(platform, spec)
        repository = f"{platform.name}-{name}"
        return ImagePlan(name, platform.project, platform.region, repository, True, spec.mirror, pushers)
    _, project, _, location, _, repository = spec.repository.split("/")
    return ImagePlan(name, project, location, repository, False, None)


def _pushers(platform: Platform, spec: ImageRepository) -> tuple[str, ...]:
    """Names that are no team, and several teams without a choice, are refused by rules."""
    if spec.teams is not None:
        return tuple(sorted({name for name in spec.teams if name in platform.teams}))
    candidates = teams_with_members(platform)
    return candidates if len(candidates) == 1 else ()


def mirror_of(platform: Platform, image: str) -> str:
    """The image by way of the platform's mirror, where it has one of the image's registry; else the image."""
    hub = next((plan for plan in repositories(platform) if plan.mirror == "docker-hub"), None)
    first, slash, _ = image.partition("/")
    if hub is None or (slash and ("." in first or ":" in first or first == "localhost")):
        return image
    return f"{hub.address}/{image if slash else f'library/{image}'}"
