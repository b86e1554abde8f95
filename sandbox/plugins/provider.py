"""A Pulumi provider plugin in Python: the gRPC service the engine calls, over a plain-Python `Provider`.

The service unpacks requests into Python values (see `values`), keeps secrets marked, turns errors into gRPC statuses
and lives exactly as long as the engine that started it. What a provider does is up to the `Provider` given to `serve`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.empty_pb2 import Empty
from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc, status_pb2

from sandbox.plugins.steps import step
from sandbox.plugins.values import mark_secrets, marshal, plain, unmarshal

# The engine runs up to 16 steps per CPU at once and each may wait for an operation; idle threads cost nothing.
WORKERS = 256


class ProviderError(Exception):
    """A failure for the person who runs Pulumi: the message is shown as it is."""


class InitializationFailed(ProviderError):
    """The resource exists but did not become ready: the engine keeps it in state and tries to update it next time."""

    def __init__(self, identity: str, outputs: Mapping[str, Any], reason: str) -> None:
        super().__init__(reason)
        self.identity = identity
        self.outputs = outputs


@dataclass(frozen=True)
class Failure:
    """Why an input is refused. `property` is its path, empty for the resource as a whole."""

    property: str
    reason: str


@dataclass(frozen=True)
class Checked:
    """Inputs completed with defaults, and what is wrong with them."""

    inputs: Mapping[str, Any]
    failures: Sequence[Failure] = ()


@dataclass(frozen=True)
class Change:
    """One changed property. `path` is like `nodeConfig.labels.a` or `nodeLocations[0]`; `kind`: add, delete, update."""

    path: str
    kind: str
    replace: bool = False

    @property
    def top(self) -> str:
        """The top-level property the path starts with."""
        return self.path.split(".")[0].split("[")[0]


@dataclass(frozen=True)
class Difference:
    """What would change; empty `changes` mean that nothing does."""

    changes: Sequence[Change] = ()
    delete_before_replace: bool = False

    @property
    def replaces(self) -> bool:
        return any(c.replace for c in self.changes)


@dataclass(frozen=True)
class State:
    """A resource as it is. An empty `id` means that it does not exist (or, in a preview, not yet)."""

    id: str
    outputs: Mapping[str, Any]
    inputs: Mapping[str, Any]


@dataclass(frozen=True)
class Subject:
    """The resource a call is about."""

    type: str
    name: str
    urn: str

    @classmethod
    def of(cls, urn: str) -> Subject:
        """From a URN `urn:pulumi:STACK::PROJECT::PARENT$TYPE::NAME`."""
        _, _, types, name = urn.split("::", 3)
        return cls(types.rsplit("$", 1)[-1], name, urn)


class Provider(Protocol):
    """What a plugin does. All values are plain (`values.plain`); `UNKNOWN` stands for what a preview does not know.

    `olds` of diff and update are the outputs in state, `news` the checked inputs, `ignore` the `ignore_changes`.
    Every method may raise ProviderError. `timeout` is in seconds, 0 where the program sets none. Methods are called
    from many threads at once.
    """

    name: str
    version: str

    def check_config(self, news: dict[str, Any]) -> Checked: ...
    def diff_config(self, olds: dict[str, Any], news: dict[str, Any]) -> Difference: ...
    def configure(self, inputs: dict[str, Any]) -> None: ...
    def check(self, subject: Subject, olds: dict[str, Any], news: dict[str, Any], seed: bytes) -> Checked: ...
    def diff(
        self, subject: Subject, olds: dict[str, Any], news: dict[str, Any], ignore: Sequence[str]
    ) -> Difference: ...
    def create(self, subject: Subject, news: dict[str, Any], timeout: float, preview: bool) -> State: ...
    def read(self, subject: Subject, identity: str, inputs: dict[str, Any], outputs: dict[str, Any]) -> State: ...
    def update(
        self,
        subject: Subject,
        identity: str,
        olds: dict[str, Any],
        news: dict[str, Any],
        ignore: Sequence[str],
        timeout: float,
        preview: bool,
    ) -> Mapping[str, Any]: ...
    def delete(self, subject: Subject, identity: str, outputs: dict[str, Any], timeout: float) -> None: ...
    def invoke(self, token: str, arguments: dict[str, Any]) -> Mapping[str, Any]: ...
    def cancel(self) -> None: ...


class _Status(NamedTuple):
    """What `ServicerContext.abort_with_status` takes (grpc.Status is only an interface)."""

    code: grpc.StatusCode
    details: str
    trailing_metadata: tuple[tuple[str, bytes], ...]


def _init_failed_status(failure: InitializationFailed) -> _Status:
    detail = AnyMessage()
    detail.Pack(
        provider_pb2.ErrorResourceInitFailed(
            id=failure.identity, properties=marshal(failure.outputs), reasons=[str(failure)]
        )
    )
    message = f"resource is not ready: {failure}"
    status = status_pb2.Status(code=grpc.StatusCode.UNKNOWN.value[0], message=message, details=[detail])
    return _Status(grpc.StatusCode.UNKNOWN, message, (("grpc-status-details-bin", status.SerializeToString()),))


@contextmanager
def _secrets_kept(inputs: Mapping[str, Any]) -> Iterator[None]:
    """Values that came in as secrets stay secret, also in the state of a resource that did not become ready."""
    try:
        yield
    except InitializationFailed as failure:
        failure.outputs = mark_secrets(failure.outputs, inputs)
        raise


def _named(phase: str, subject: Subject, preview: bool = False) -> AbstractContextManager[None]:
    """The step that a call is; a preview is none."""
    return nullcontext() if preview else step(f"{phase} {subject.type}::{subject.name}")


Handler = Callable[["Service", Any, grpc.ServicerContext], Any]


def _answer(handler: Handler) -> Handler:
    """The handler with its exceptions turned into gRPC statuses; a bug is reported as one, with its trace on stderr."""

    def answered(self: Service, request: Any, context: grpc.ServicerContext) -> Any:
        try:
            return handler(self, request, context)
        except InitializationFailed as error:
            context.abort_with_status(_init_failed_status(error))
        except ProviderError as error:
            context.abort(grpc.StatusCode.UNKNOWN, str(error))
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            reason = f"bug in the sandbox's {self.provider.name} plugin: {type(error).__name__}: {error}"
            context.abort(grpc.StatusCode.INTERNAL, reason)

    return answered


def _plain(struct: Any) -> dict[str, Any]:
    unwrapped: dict[str, Any] = plain(unmarshal(struct))
    return unwrapped


_KINDS = {
    (kind, replace): provider_pb2.PropertyDiff.Kind.Value(f"{kind}_REPLACE" if replace else kind)
    for kind in ("ADD", "DELETE", "UPDATE")
    for replace in (False, True)
}


def _diff_response(difference: Difference) -> Any:
    changes = difference.changes
    return provider_pb2.DiffResponse(
        changes=provider_pb2.DiffResponse.DIFF_SOME if changes else provider_pb2.DiffResponse.DIFF_NONE,
        replaces=sorted({c.top for c in changes if c.replace}),
        diffs=sorted({c.top for c in changes}),
        detailedDiff={c.path: provider_pb2.PropertyDiff(kind=_KINDS[c.kind.upper(), c.replace]) for c in changes},
        hasDetailedDiff=True,
        deleteBeforeReplace=difference.delete_before_replace and difference.replaces,
    )


def _check_response(checked: Checked, news: Mapping[str, Any]) -> Any:
    failures = [provider_pb2.CheckFailure(property=f.property, reason=f.reason) for f in checked.failures]
    return provider_pb2.CheckResponse(inputs=marshal(mark_secrets(checked.inputs, news)), failures=failures)


class Service(provider_pb2_grpc.ResourceProviderServicer):
    """The gRPC face of one provider. What is not overridden here answers UNIMPLEMENTED, as the engine expects."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider

    @_answer
    def Handshake(self, request: Any, context: grpc.ServicerContext) -> Any:
        return provider_pb2.ProviderHandshakeResponse(accept_secrets=True, accept_resources=True, accept_outputs=True)

    @_answer
    def GetPluginInfo(self, request: Any, context: grpc.ServicerContext) -> Any:
        return plugin_pb2.PluginInfo(version=self.provider.version)

    @_answer
    def GetSchema(self, request: Any, context: grpc.ServicerContext) -> Any:
        described = {"name": self.provider.name, "version": self.provider.version}
        return provider_pb2.GetSchemaResponse(schema=json.dumps(described))

    @_answer
    def Attach(self, request: Any, context: grpc.ServicerContext) -> Any:
        return Empty()

    @_answer
    def CheckConfig(self, request: Any, context: grpc.ServicerContext) -> Any:
        news = unmarshal(request.news)
        return _check_response(self.provider.check_config(plain(news)), news)

    @_answer
    def DiffConfig(self, request: Any, context: grpc.ServicerContext) -> Any:
        return _diff_response(self.provider.diff_config(_plain(request.olds), _plain(request.news)))

    @_answer
    def Configure(self, request: Any, context: grpc.ServicerContext) -> Any:
        self.provider.configure(_plain(request.args))
        return provider_pb2.ConfigureResponse(
            acceptSecrets=True, supportsPreview=True, acceptResources=True, acceptOutputs=True
        )

    @_answer
    def Check(self, request: Any, context: grpc.ServicerContext) -> Any:
        news = unmarshal(request.news)
        subject = Subject.of(request.urn)
        checked = self.provider.check(subject, _plain(request.olds), plain(news), request.randomSeed)
        return _check_response(checked, news)

    @_answer
    def Diff(self, request: Any, context: grpc.ServicerContext) -> Any:
        olds, news = _plain(request.olds), _plain(request.news)
        return _diff_response(self.provider.diff(Subject.of(request.urn), olds, news, request.ignoreChanges))

    @_answer
    def Create(self, request: Any, context: grpc.ServicerContext) -> Any:
        news = unmarshal(request.properties)
        subject = Subject.of(request.urn)
        with _secrets_kept(news), _named("create", subject, request.preview):
            state = self.provider.create(subject, plain(news), request.timeout, request.preview)
        return provider_pb2.CreateResponse(id=state.id, properties=marshal(mark_secrets(state.outputs, news)))

    @_answer
    def Read(self, request: Any, context: grpc.ServicerContext) -> Any:
        inputs, outputs = unmarshal(request.inputs), unmarshal(request.properties)
        state = self.provider.read(Subject.of(request.urn), request.id, plain(inputs), plain(outputs))
        return provider_pb2.ReadResponse(
            id=state.id,
            properties=marshal(mark_secrets(state.outputs, outputs)),
            inputs=marshal(mark_secrets(state.inputs, inputs)),
        )

    @_answer
    def Update(self, request: Any, context: grpc.ServicerContext) -> Any:
        news = unmarshal(request.news)
        subject = Subject.of(request.urn)
        with _secrets_kept(news), _named("update", subject, request.preview):
            outputs = self.provider.update(
                subject,
                request.id,
                _plain(request.olds),
                plain(news),
                request.ignoreChanges,
                request.timeout,
                request.preview,
            )
        return provider_pb2.UpdateResponse(properties=marshal(mark_secrets(outputs, news)))

    @_answer
    def Delete(self, request: Any, context: grpc.ServicerContext) -> Any:
        subject = Subject.of(request.urn)
        with _named("delete", subject):
            self.provider.delete(subject, request.id, _plain(request.properties), request.timeout)
        return Empty()

    @_answer
    def Invoke(self, request: Any, context: grpc.ServicerContext) -> Any:
        arguments = unmarshal(request.args)
        response = provider_pb2.InvokeResponse()
        getattr(response, "return").CopyFrom(marshal(self.provider.invoke(request.tok, plain(arguments))))
        return response

    @_answer
    def Cancel(self, request: Any, context: grpc.ServicerContext) -> Any:
        self.provider.cancel()
        return Empty()


def start(provider: Provider) -> tuple[grpc.Server, int]:
    """A running server for `provider` on a free port of 127.0.0.1, and that port."""
    unlimited = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    server = grpc.server(ThreadPoolExecutor(max_workers=WORKERS), options=unlimited)
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(Service(provider), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return server, port


def serve(provider: Provider) -> None:
    """Run as a plugin: print the port on stdout, serve until told to end or until the process that started us is gone.

    The engine ends its plugins with SIGINT. A person's Ctrl-C does not come here: plugins have a process group of their
    own, since the engine still needs them to wind down the running steps.
    """
    parent = os.getppid()
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    server, port = start(provider)
    print(port, flush=True)
    # Not PR_SET_PDEATHSIG: it fires when the parent's *thread* ends, and the Go engine's threads come and go.
    while os.getppid() == parent and not stopped.wait(0.5):
        pass
    provider.cancel()
    server.stop(grace=1).wait()
