"""Runs the checks one after the other; what one cannot find out does not stop the next."""

from collections.abc import Iterator
from dataclasses import dataclass

from plan.platform import Platform
from tools.preflight.checks import CHECKS
from tools.preflight.cloud import Cloud, NoConnectionError, RefusedError
from tools.preflight.findings import Finding, Row
from tools.preflight.offline import offline
from tools.preflight.scene import Scene


@dataclass(frozen=True)
class Result:
    """What was found; `connected` False: Google could not be asked, or no longer."""

    rows: tuple[Row, ...]
    connected: bool

    @property
    def blocked(self) -> bool:
        return any(row.finding.level == "blocks" for row in self.rows)


def preflight(platform: Platform, stack: str, cloud: Cloud | None) -> Result:
    """All checks; only those that need nobody where `cloud` is None."""
    rows: list[Row] = []
    connected = True
    if cloud is None:
        rows.append(Row("cloud", Finding("not checked", f"{', '.join(CHECKS)}", "run it without --offline")))
    else:
        try:
            for row in _online(Scene(platform, stack, cloud)):
                rows.append(row)
        except NoConnectionError as error:
            rows.append(Row("cloud", Finding("not checked", str(error), error.next_step)))
            connected = False
    version_known = any(row.check == "version" and row.finding.level != "not checked" for row in rows)
    return Result((*offline(platform, version_known=version_known), *rows), connected)


def _online(scene: Scene) -> Iterator[Row]:
    for name, check in CHECKS.items():
        blocked = False
        try:
            for finding in check(scene):
                blocked = blocked or finding.level == "blocks"
                yield Row(name, finding)
        except RefusedError as error:
            yield Row(name, _not_checked(scene, error))
        if name == "project" and blocked:
            return


def _not_checked(scene: Scene, error: RefusedError) -> Finding:
    project = scene.platform.project
    if error.switched_off:
        step = f"gcloud services enable {error.service} --project={project}"
        return Finding("not checked", f"{error.service} is off in {project}", step)
    return Finding("not checked", f"Google answers {error.status}: {error}", "see docs/preflight.md")
