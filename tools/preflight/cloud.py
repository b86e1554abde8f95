"""Reading Google's APIs with Google's own Python client.

It is google-api-python-client for all of them: the newer client of Kubernetes Engine speaks gRPC only. Endpoints and
token are looked up where the gcp provider looks: the stack's configuration, then the environment.
"""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

Json = dict[str, Any]
T = TypeVar("T")

TIMEOUT_SECONDS = 30
RETRIES = 2
SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)
LOGIN = "gcloud auth application-default login, or set GOOGLE_APPLICATION_CREDENTIALS"


class NoConnectionError(Exception):
    """Google cannot be asked: no credentials, or no network. `next_step` says what to do."""

    def __init__(self, what: str, next_step: str) -> None:
        super().__init__(what)
        self.next_step = next_step


class RefusedError(Exception):
    """Google answered with an error. `status`: the HTTP code; `reason`: Google's word for it, such as
    `SERVICE_DISABLED`; `service`: the API that is switched off, where that is the reason."""

    def __init__(self, status: int, reason: str, message: str, service: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.service = service

    @property
    def switched_off(self) -> bool:
        """Whether the API itself is off, which says nothing of what was asked for."""
        return self.reason == "SERVICE_DISABLED"

    @property
    def forbidden(self) -> bool:
        """Whether the caller may not see what was asked for."""
        return self.status == 403 and not self.switched_off


@dataclass(frozen=True)
class Api:
    """An API: name and version of its description, and the provider's setting that says where it is."""

    name: str
    version: str
    setting: str

    @property
    def variable(self) -> str:
        """The provider's variable for the setting: GOOGLE_COMPUTE_CUSTOM_ENDPOINT for computeCustomEndpoint."""
        return f"GOOGLE_{re.sub(r'(?<=[a-z0-9])(?=[A-Z])', '_', self.setting).upper()}"


APIS = {
    "billing": Api("cloudbilling", "v1", "cloudBillingCustomEndpoint"),
    "compute": Api("compute", "v1", "computeCustomEndpoint"),
    "container": Api("container", "v1", "containerCustomEndpoint"),
    "monitoring": Api("monitoring", "v3", "monitoringCustomEndpoint"),
    "dashboards": Api("monitoring", "v1", "monitoringCustomEndpoint"),
    "logging": Api("logging", "v2", "loggingCustomEndpoint"),
    "budgets": Api("billingbudgets", "v1", "billingCustomEndpoint"),
    # accounts, roles, and pools of identities
    "iam": Api("iam", "v1", "iamBetaCustomEndpoint"),
    "projects": Api("cloudresourcemanager", "v3", "resourceManagerV3CustomEndpoint"),
    "secrets": Api("secretmanager", "v1", "secretManagerCustomEndpoint"),
    "storage": Api("storage", "v1", "storageCustomEndpoint"),
    "registries": Api("artifactregistry", "v1", "artifactRegistryCustomEndpoint"),
    "services": Api("serviceusage", "v1", "serviceUsageCustomEndpoint"),
    # limits of quotas with dimensions, which Compute Engine's own description of a region leaves out
    "quotas": Api("serviceusage", "v1beta1", "serviceUsageCustomEndpoint"),
}


class Cloud:
    """Google's APIs, for reading. `settings` are the stack's `gcp:` settings without that prefix."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings
        self._http: Any = None
        self._services: dict[str, Any] = {}

    def get(self, api: str, method: str, **parameters: Any) -> Json:
        """The answer of a method such as `reservations.get`. Raises NoConnectionError and RefusedError."""
        *collections, verb = method.split(".")
        return self._guarded(lambda: _executed(getattr(self._collection(api, collections), verb)(**parameters)))

    def find(self, api: str, method: str, **parameters: Any) -> Json | None:
        """The same; None for what does not exist."""
        try:
            return self.get(api, method, **parameters)
        except RefusedError as error:
            if error.status == 404:
                return None
            raise

    def media(self, api: str, method: str, **parameters: Any) -> bytes | None:
        """The content that a method such as `objects.get` describes; None for what does not exist."""
        *collections, verb = method.split(".")
        try:
            return self._guarded(
                lambda: bytes(
                    getattr(self._collection(api, collections), f"{verb}_media")(**parameters).execute(
                        num_retries=RETRIES
                    )
                )
            )
        except RefusedError as error:
            if error.status == 404:
                return None
            raise

    def pages(self, api: str, method: str, items: str, **parameters: Any) -> list[Json]:
        """The entries that a method such as `services.list` has under `items`, from all pages."""
        *collections, verb = method.split(".")

        def read() -> list[Json]:
            collection = self._collection(api, collections)
            found: list[Json] = []
            request = getattr(collection, verb)(**parameters)
            while request is not None:
                page = _executed(request)
                found += page.get(items, ())
                request = getattr(collection, f"{verb}_next")(request, page)
            return found

        return self._guarded(read)

    def _collection(self, api: str, names: list[str]) -> Any:
        found = self._service(api)
        for name in names:
            found = getattr(found, name)()
        return found

    def _service(self, api: str) -> Any:
        if api not in self._services:
            from google.api_core.client_options import ClientOptions
            from googleapiclient import discovery

            description = APIS[api]
            self._services[api] = discovery.build(
                description.name,
                description.version,
                http=self._authorized(),
                static_discovery=True,
                client_options=ClientOptions(api_endpoint=self._endpoint(description)),
            )
        return self._services[api]

    def _endpoint(self, api: Api) -> str | None:
        """The base URL to use instead of Google's; in the provider's settings it ends in the API's version, which
        the client adds by itself (but for Compute Engine and Cloud Storage, where it is part of the base)."""
        given = self._settings.get(api.setting) or os.environ.get(api.variable)
        if not given or api.name in ("compute", "storage"):
            return given
        return re.sub(r"/v\d\w*/?$", "/", str(given))

    def _authorized(self) -> Any:
        if self._http is None:
            import google_auth_httplib2
            import httplib2

            credentials = self._credentials()
            self._http = google_auth_httplib2.AuthorizedHttp(credentials, http=httplib2.Http(timeout=TIMEOUT_SECONDS))
        return self._http

    def _credentials(self) -> Any:
        token = self._settings.get("accessToken") or os.environ.get("GOOGLE_OAUTH_ACCESS_TOKEN")
        if token:
            from google.oauth2.credentials import Credentials

            return Credentials(token=str(token))  # type: ignore[no-untyped-call]
        import google.auth

        credentials, _ = google.auth.default(scopes=SCOPES)
        return credentials

    def _guarded(self, call: Callable[[], T]) -> T:
        """The result of a call, with what the client raises in this module's own errors."""
        import httplib2
        from google.auth import exceptions as auth
        from googleapiclient.errors import HttpError

        try:
            return call()
        except HttpError as error:
            raise _refusal(error) from None
        except auth.TransportError as error:
            raise NoConnectionError(f"no connection to Google: {error}", "check network and proxy") from None
        except auth.GoogleAuthError as error:
            raise NoConnectionError(f"no usable credentials: {error}", LOGIN) from None
        except (httplib2.HttpLib2Error, OSError) as error:
            raise NoConnectionError(f"no connection to Google: {error}", "check network and proxy") from None


def _executed(request: Any) -> Json:
    answer = request.execute(num_retries=RETRIES)
    if not isinstance(answer, dict):  # the client hands on as text what is no JSON
        raise NoConnectionError("what answers is not Google's API", "check proxy and endpoint settings")
    return answer


def _refusal(error: Any) -> RefusedError | NoConnectionError:
    """An error answer; one that says who we are is not known (401) counts as no credentials."""
    if error.status_code == 401:
        return NoConnectionError("Google does not accept the credentials", LOGIN)
    details = error.error_details if isinstance(error.error_details, list) else []
    infos = [each for each in details if isinstance(each, dict) and "reason" in each]
    reason = str(infos[0]["reason"]) if infos else ""
    service = str(infos[0].get("metadata", {}).get("service", "")) if infos else ""
    return RefusedError(error.status_code, reason, str(error.reason or "no reason given").strip(), service)
