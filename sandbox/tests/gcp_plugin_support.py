"""What the tests of the stand-in gcp plugin share: the recordings of the real plugin, a configuration, a fake API."""

from __future__ import annotations

import copy
import itertools
import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import httpx

from sandbox.plugins.gcp.plugin import GcpProvider
from sandbox.plugins.gcp.resources import ROWS
from sandbox.plugins.provider import Subject
from sandbox.plugins.values import SIGNATURE, plain

DATA = Path(__file__).parent / "data"
HOST = "http://127.0.0.1:1"
Json = dict[str, Any]

CONFIG: Json = {
    "project": "proj",
    "region": "us-east5",
    "zone": "us-east5-b",
    "accessToken": "token",
    "pollInterval": "1ms",
    "containerCustomEndpoint": f"{HOST}/container/v1beta1/",
    "computeCustomEndpoint": f"{HOST}/compute/beta/",
    "iamBetaCustomEndpoint": f"{HOST}/iam/v1/",
    "serviceUsageCustomEndpoint": f"{HOST}/su/v1/",
    "resourceManagerCustomEndpoint": f"{HOST}/crm/v1/",
    "secretManagerCustomEndpoint": f"{HOST}/sm/v1/",
    "kmsCustomEndpoint": f"{HOST}/kms/v1/",
    "storageCustomEndpoint": f"{HOST}/storage/v1/",
    "artifactRegistryCustomEndpoint": f"{HOST}/ar/v1/",
    "loggingCustomEndpoint": f"{HOST}/logging/v2/",
    "monitoringCustomEndpoint": f"{HOST}/monitoring/",
    "billingCustomEndpoint": f"{HOST}/budgets/v1/",
    "cloudBillingCustomEndpoint": f"{HOST}/billing/v1/",
}


@cache
def _states() -> dict[str, Json]:
    return {row["name"]: row for row in json.loads((DATA / "provider_state.json").read_text())}


def recorded_names() -> list[str]:
    """The logical names of the recorded resources of types that the stand-in knows, in order of creation."""
    return [name for name, row in _states().items() if row["type"] in ROWS]


def recorded_state(name: str) -> Json:
    """A recorded resource: type, name, id, inputs and outputs as plain values."""
    row: Json = _plain(_states()[name])
    return row


def _plain(value: Any) -> Any:
    """State files write a secret as an object with its JSON text inside."""
    if isinstance(value, dict):
        if SIGNATURE in value:
            return json.loads(value["plaintext"])
        return {k: _plain(v) for k, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, list) else value


def plain_outputs(outputs: Any) -> Json:
    """Outputs as the engine would hand them back: without secret wrappers."""
    result: Json = plain(dict(outputs))
    return result


def subject(token: str, name: str) -> Subject:
    return Subject.of(f"urn:pulumi:dev::p::{token}::{name}")


def config_at(url: str) -> Json:
    """CONFIG, with the APIs at another address."""
    return {key: value.replace(HOST, url) for key, value in CONFIG.items()}


def configured(transport: httpx.BaseTransport | None = None, **settings: Any) -> GcpProvider:
    """A provider ready for calls, over `transport` instead of the network."""
    provider = GcpProvider(transport)
    provider.configure({**CONFIG, **settings})
    return provider


def _without_nulls(value: Any) -> Any:
    """What of a body is kept: null means that there is nothing."""
    if isinstance(value, dict):
        return {k: _without_nulls(v) for k, v in value.items() if v is not None}
    return [_without_nulls(v) for v in value if v is not None] if isinstance(value, list) else value


Rule = tuple[str, re.Pattern[str], Callable[..., Any]]


class FakeGoogle(httpx.MockTransport):
    """Just enough of Google's APIs to answer the plugin's own calls: it stores what it is sent and checks nothing.

    It stands for the permissive server behind the recordings. The emulator of the sandbox is the strict one; this one
    exists to look at calls. Operations are done at once. `calls` are the requests in order, `respond` may be set to
    answer before the fake does: it gets a call and returns a response or None.
    """

    def __init__(self) -> None:
        super().__init__(self._handle)
        self.calls: list[Json] = []
        self.objects: dict[str, Json] = {}
        self.policies: dict[str, Json] = {}
        self.services: set[str] = set()
        self.respond: Callable[[Json], httpx.Response | None] = lambda _call: None
        self._numbers = itertools.count(1000)

    def _handle(self, request: httpx.Request) -> httpx.Response:
        call: Json = {"method": request.method, "path": request.url.path}
        if request.url.query:
            call["query"] = request.url.query.decode()
        if request.content:
            call["body"] = json.loads(request.content)
        recorded = copy.deepcopy(call)
        answer = self.respond(call) or self._answer(request.method, request.url.path, call.get("body"), request.url)
        self.calls.append({**recorded, "status": answer.status_code})
        return answer

    def _answer(self, method: str, path: str, body: Any, url: httpx.URL) -> httpx.Response:
        for wanted, pattern, handler in self._rules():
            if wanted == method and (match := pattern.fullmatch(path)):
                answer: httpx.Response = handler(*match.groups(), body=body, url=url)
                return answer
        raise AssertionError(f"the fake has no answer for {method} {path}")

    def _rules(self) -> list[Rule]:
        rules: list[tuple[str, str, Callable[..., Any]]] = [
            ("GET", r"/su/v1/projects/\w+/services", self._list_services),
            ("POST", r"/su/v1/projects/\w+/services/(.+):enable", self._enable),
            ("GET", r"/crm/v1/projects/(\w+)", lambda p, **_: _ok({"projectId": p, "name": p, "projectNumber": "1"})),
            ("(GET|POST)", r"(.+):getIamPolicy", self._get_policy),
            ("POST", r"(.+):setIamPolicy", self._set_policy),
            ("POST", r"/iam/v1/projects/(\w+)/serviceAccounts", self._create_account),
            ("POST", r"/iam/v1/projects/(\w+)/roles", self._create_role),
            ("POST", r"(/sm/v1/projects/\w+/secrets)", self._create_secret),
            ("POST", r"(/logging/v2/projects/\w+/\w+)", self._create_named),
            ("POST", r"/monitoring/(v[13])/projects/(\w+)/(\w+)", self._create_monitored),
            ("POST", r"/budgets/v1/(billingAccounts/[^/]+)/budgets", self._create_budget),
            ("PUT", r"(/logging/.+)", self._patch),
            ("POST", r"(/container/.+/clusters)", self._create_cluster),
            ("POST", r"(/container/.+/clusters/[^/]+/nodePools)", self._create_pool),
            ("DELETE", r"/container/.+/nodePools/default-pool", lambda **_: _ok(_DONE)),
            ("POST", r"(/compute/.+/\w+)/setLabels", self._set_labels),
            ("POST", r"(/compute/.+)", self._create_compute),
            ("GET", r"(/container/.+/nodePools|/compute/.+/instanceGroupManagers)", self._list),
            ("GET", r"(.+)", self._get),
            ("PATCH", r"(.+)", self._patch),
            ("PUT", r"(/container/.+/nodePools/[^/]+)", self._update_pool),
            ("PUT", r"(.+)", lambda path, **_: _ok(_DONE)),
            ("DELETE", r"(.+)", self._delete),
        ]
        return [(m, re.compile(p), h) for ms, p, h in rules for m in re.findall(r"[A-Z]+", ms)]

    def _list_services(self, **_: Any) -> httpx.Response:
        return _ok({"services": [{"name": f"projects/1/services/{s}"} for s in sorted(self.services)]})

    def _enable(self, service: str, **_: Any) -> httpx.Response:
        self.services.add(service)
        return _ok({"name": "operations/1", "done": True})

    def _get_policy(self, resource: str, **_: Any) -> httpx.Response:
        return _ok(self.policies.get(resource, {"etag": "BwX="}))

    def _set_policy(self, resource: str, body: Json, **_: Any) -> httpx.Response:
        self.policies[resource] = body["policy"]
        return _ok(body["policy"])

    def _create_account(self, project: str, body: Json, **_: Any) -> httpx.Response:
        email = f"{body['accountId']}@{project}.iam.gserviceaccount.com"
        name = f"projects/{project}/serviceAccounts/{email}"
        return self._store(
            f"/iam/v1/{name}", {**body["serviceAccount"], "name": name, "email": email, "uniqueId": "123"}
        )

    def _create_role(self, project: str, body: Json, **_: Any) -> httpx.Response:
        name = f"projects/{project}/roles/{body['roleId']}"
        return self._store(f"/iam/v1/{name}", {**body["role"], "name": name})

    def _create_secret(self, path: str, body: Json, url: httpx.URL, **_: Any) -> httpx.Response:
        name = url.params["secretId"]
        return self._store(f"{path}/{name}", {**body, "name": f"projects/123/secrets/{name}"})

    def _create_named(self, path: str, body: Json, **_: Any) -> httpx.Response:
        return self._store(f"{path}/{body['name']}", dict(body))

    def _create_monitored(self, version: str, project: str, kind: str, body: Json, **_: Any) -> httpx.Response:
        name = f"projects/{project}/{kind}/{next(self._numbers)}"
        return self._store(f"/monitoring/{version}/{name}", {**body, "name": name, "etag": "1"})

    def _create_budget(self, account: str, body: Json, **_: Any) -> httpx.Response:
        name = f"{account}/budgets/{next(self._numbers)}"
        return self._store(f"/budgets/v1/{name}", {**body, "name": name, "etag": "1"})

    def _create_cluster(self, path: str, body: Json, **_: Any) -> httpx.Response:
        cluster = body["cluster"]
        made = {**cluster, "status": "RUNNING", "endpoint": "192.0.2.1", "currentMasterVersion": "1.36.2-gke.1000000"}
        self._store(f"{path}/{cluster['name']}", made)
        return _ok(_DONE)

    def _create_pool(self, path: str, body: Json, **_: Any) -> httpx.Response:
        pool = body["nodePool"]
        [zone] = pool["locations"]
        group = f"/compute/beta/projects/proj/zones/{zone}/instanceGroupManagers/gke-{pool['name']}"
        self.objects[group] = {
            "name": f"gke-{pool['name']}",
            "selfLink": f"https://www.googleapis.com{group}",
            "instanceGroup": f"https://www.googleapis.com{group.replace('Managers', 's')}",
            "targetSize": pool.get("initialNodeCount", 0),
        }
        made = {
            **pool,
            "status": "RUNNING",
            "instanceGroupUrls": [f"https://www.googleapis.com{group}"],
            "version": "1.36",
        }
        self._store(f"{path}/{pool['name']}", made)
        return _ok(_DONE)

    def _update_pool(self, path: str, body: Json, **_: Any) -> httpx.Response:
        if "labels" in body:
            self.objects[path]["config"]["labels"] = body["labels"]["labels"]
        return _ok(_DONE)

    def _create_compute(self, path: str, body: Json, **_: Any) -> httpx.Response:
        number = str(next(self._numbers))
        link = f"https://www.googleapis.com{path}/{body['name']}"
        made = {
            **_without_nulls(body),
            "id": number,
            "selfLink": link,
            "fingerprint": "Zg==",
            "creationTimestamp": "2026-01-01T00:00:00Z",
        }
        for version in made.get("versions", ()):
            by_number = self.objects[httpx.URL(version["instanceTemplate"]).path]
            version["instanceTemplate"] = by_number["selfLink"]
        if path.endswith("/instances"):
            self._add_disks(path, made)
        if path.endswith("/instanceTemplates"):
            self.objects[f"{path}/{number}"] = made
        self.objects[f"{path}/{body['name']}"] = made
        return _ok({**_DONE, "targetId": number, "targetLink": link})

    def _add_disks(self, path: str, instance: Json) -> None:
        [boot] = instance["disks"]
        disk = f"{path.replace('instances', 'disks')}/{instance['name']}"
        asked = boot.pop("initializeParams")
        boot.update({"source": f"https://www.googleapis.com{disk}", "deviceName": "persistent-disk-0"})
        self.objects[disk] = {
            "sizeGb": asked["diskSizeGb"],
            "type": asked["diskType"],
            "sourceImage": asked["sourceImage"],
        }

    def _set_labels(self, path: str, body: Json, **_: Any) -> httpx.Response:
        self.objects[path]["labels"] = body["labels"]
        return _ok(_DONE)

    def _list(self, path: str, **_: Any) -> httpx.Response:
        below = [o for p, o in self.objects.items() if p.rpartition("/")[0] == path]
        return _ok({"nodePools" if path.endswith("nodePools") else "items": below})

    def _get(self, path: str, **_: Any) -> httpx.Response:
        return _ok(self.objects[path]) if path in self.objects else _missing(path)

    def _patch(self, path: str, body: Json, **_: Any) -> httpx.Response:
        self.objects[path].update(body)
        return _ok(_DONE if path.startswith("/compute") else self.objects[path])

    def _delete(self, path: str, **_: Any) -> httpx.Response:
        return _ok(_DONE) if self.objects.pop(path, None) is not None else _missing(path)

    def _store(self, path: str, content: Json) -> httpx.Response:
        self.objects[path] = content
        return _ok(content)


_DONE: Json = {"name": "operation-1", "operationType": "x", "status": "DONE"}


def _ok(content: Json) -> httpx.Response:
    return httpx.Response(200, json=content)


def _missing(path: str) -> httpx.Response:
    return error(404, f"Not found: {path}", "NOT_FOUND")


def error(status: int, message: str, reason: str = "", **headers: str) -> httpx.Response:
    """An error answer in Google's shape."""
    content = {"error": {"code": status, "message": message, "status": reason}}
    return httpx.Response(status, json=content, headers={k.replace("_", "-"): v for k, v in headers.items()})
