"""Faults that a person stages in a running sandbox, to rehearse what to do: `python -m sandbox fault`.

The emulator plays what Google does wrong (`sandbox.google.faults`, `sandbox.google.interruptions`, and its stock of
machines). An API server that is away is a process that is stopped for a while: connections to it hang, as those to a
control plane do that Google is upgrading.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
from pydantic import ValidationError

from sandbox.google.faults import STOCKOUT, Fault
from sandbox.google.machines import machine_type, region_of, zones_of
from sandbox.session import SandboxError, Session

UNTIL_CLEARED = 1_000_000
"""Requests that a fault strikes: more than anybody makes."""
NEW_POOL = r"/nodePools$"
API_SERVER = "kube-apiserver"
CAPACITIES = {"": "", "on-demand": "on-demand", "spot": "spot", "flex-start": "flex"}
"""The emulator's word for each capacity; \"\" means any."""
Json = dict[str, Any]


@dataclass(frozen=True)
class Staged:
    """What is staged in a sandbox."""

    session: Session

    def requests(self) -> list[Fault]:
        return [Fault(**each) for each in self._call("GET", "faults")]

    def lines(self) -> list[str]:
        """What is staged now, a line each."""
        return [
            *(f"{each['machine_type']} in {each['zone']}: {_stock(each)}" for each in self._call("GET", "stock")),
            *(
                f"quota in {region}: {metric} {limit:g}"
                for region, limits in self._call("GET", "quotas").items()
                for metric, limit in limits.items()
            ),
            *(f"host {each['host']} of {each['of']}: {each['kind']}" for each in self._call("GET", "interruptions")),
            *(_line(each) for each in self.requests()),
            *(f"API server of {each.cwd()}: away" for each in self._api_servers() if _is_stopped(each)),
        ]

    def clear(self) -> None:
        """Takes everything away that is staged; lost hosts come back."""
        self._call("DELETE", "faults")
        for each in self._call("GET", "stock"):
            self._call("POST", "stock", {**each, "machines": None})
        self._call("POST", "quotas", {region: {} for region in self._call("GET", "quotas")})
        self._call("DELETE", "interruptions")
        self.bring_api_back()

    def stage(self, words: list[str]) -> Fault:
        """A fault of any kind, from words such as `kind=status`. Raises SandboxError for what is wrong with them."""
        if wrong := [each for each in words if "=" not in each]:
            raise SandboxError(f"{', '.join(wrong)}: write KEY=VALUE, for example kind=status path=/clusters")
        given: Json = dict(each.split("=", 1) for each in words)
        if str(given.get("status")).isdigit():
            given["status"] = int(given["status"])
        try:
            fault = Fault.model_validate(given)
        except ValidationError as error:
            known = f"keys: {', '.join(key for key in Fault.model_fields if key != 'id')}"
            raise SandboxError("; ".join((*_said(error), known))) from None
        return Fault(**self._call("POST", "faults", fault.model_dump(exclude={"id"})))

    def stock_out(self, machine: str, zone: str, capacity: str, machines: int) -> None:
        """From now on a zone has no more than so many machines of a type; a pool that would be made finds none."""
        model = _checked(capacity)
        _check_zone(zone)
        self._call("POST", "stock", {"zone": zone, "machine_type": machine, "model": model, "machines": machines})
        asked = {field: f'.*"{field}": ?true' for field in ("spot", "flexStart")}
        only = {
            "": "",
            "spot": f"(?={asked['spot']})",
            "flex": f"(?={asked['flexStart']})",
            "on-demand": f"(?!{asked['spot']})(?!{asked['flexStart']})",
        }[model]
        body = f'^{only}.*"machineType": ?"{machine}"'
        fault = Fault(kind="operation", code=STOCKOUT, method="POST", path=NEW_POOL, body=body, times=UNTIL_CLEARED)
        self._call("POST", "faults", fault.model_dump(exclude={"id"}))

    def end_quota(self, machine: str, zone: str, capacity: str) -> str:
        """From now on the quota that machines of a type are charged to is used up; the quota's name."""
        model = _checked(capacity)
        _check_zone(zone)
        found = machine_type(machine)
        if found is None or found.generation is None:
            raise SandboxError(f"{machine} is no machine type with TPUs")
        metric = found.generation.spot_quota if model in ("spot", "flex") else found.generation.quota
        self._call("POST", "quotas", {region_of(zone): {metric: 0}})
        return metric

    def interrupt(self, target: str, kind: str, seconds: float | None) -> list[str]:
        """Takes a pool's, a group's or one host away; the names of the hosts."""
        hosts: list[str] = self._call("POST", "interruptions", {"target": target, "kind": kind, "seconds": seconds})[
            "hosts"
        ]
        return hosts

    def lost(self) -> list[str]:
        """The hosts that are away."""
        return [each["host"] for each in self._call("GET", "interruptions")]

    def take_api_away(self) -> int:
        """Stops every API server of the sandbox; how many there are."""
        servers = list(self._api_servers())
        for each in servers:
            each.send_signal(signal.SIGSTOP)
        return len(servers)

    def bring_api_back(self) -> None:
        for each in self._api_servers():
            each.send_signal(signal.SIGCONT)

    def _api_servers(self) -> Iterator[psutil.Process]:
        """The processes of this sandbox alone: they run in its folder."""
        root = Path(self.session.run.kubernetes).resolve()
        for each in psutil.process_iter(["name"]):
            try:
                if each.info["name"] == API_SERVER and Path(each.cwd()).is_relative_to(root):
                    yield each
            except psutil.Error:
                continue

    def _call(self, method: str, path: str, body: Json | None = None) -> Any:
        url = f"{self.session.emulator_url}/sandbox/{path}"
        try:
            answer = httpx.request(method, url, json=body, timeout=30, trust_env=False)
        except httpx.HTTPError as error:
            raise SandboxError(f"the emulator at {self.session.emulator_url} does not answer ({error})") from None
        if answer.is_success:
            return answer.json()
        raise SandboxError(_reason(answer))


def _checked(capacity: str) -> str:
    if capacity not in CAPACITIES:
        known = ", ".join(filter(None, CAPACITIES))
        raise SandboxError(f"capacity {capacity!r} is not known -> write {known}, or leave it out")
    return CAPACITIES[capacity]


def _check_zone(zone: str) -> None:
    """In a zone that the emulator does not have nothing would fail, whatever is staged there."""
    if zone not in (there := zones_of(region_of(zone))):
        of_region = f", for example {', '.join(there or zones_of(zone))}" if there or zones_of(zone) else ""
        raise SandboxError(f"{zone!r} is not a zone -> write that of your slices{of_region}")


def _said(error: ValidationError) -> Iterator[str]:
    for each in error.errors():
        yield f"{'.'.join(map(str, each['loc']))}: {each['msg']}"


def _reason(answer: httpx.Response) -> str:
    try:
        content = answer.json()
        if "errors" in content:
            return "; ".join(f"{each['path']}: {each['message']}" for each in content["errors"])
        return str(content["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"the emulator answers {answer.status_code}: {answer.text.strip()}"


def _stock(row: Json) -> str:
    model = f" of {row['model']}" if row["model"] else ""
    return f"no more than {row['machines']} machines{model}"


def _line(fault: Fault) -> str:
    what = {
        "status": f"answers {fault.status}",
        "operation": f"operations end with {fault.code}",
        "slow": f"takes {fault.seconds:g} s longer",
        "slow-operation": f"operations take {fault.seconds:g} s",
        "webhook": "answers as if an admission webhook failed",
        "kill": f"kills the {fault.victim}",
        "cut": f"cuts the connection {'after' if fault.processed else 'before'} it acts",
        "etag": "says that the resource has changed meanwhile",
    }[fault.kind]
    times = "until cleared" if fault.times > UNTIL_CLEARED // 2 else f"{fault.times} more"
    about = f" with {fault.body}" if fault.body else ""
    step = f" in the step {fault.step}" if fault.step else ""
    return f"{fault.method} {fault.path}{about}{step}: {what}, {times}"


def _is_stopped(process: psutil.Process) -> bool:
    return bool(process.status() == psutil.STATUS_STOPPED)
