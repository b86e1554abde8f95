"""`python -m sandbox.tpu_provisioner`: the controller as a process, with upstream's flags and variables."""

from __future__ import annotations

import argparse
import base64
import logging
import os
import sys
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

from sandbox.kubernetes.api import ApiClient
from sandbox.tpu_provisioner.cluster import Recorder, SyncError
from sandbox.tpu_provisioner.controllers import Creation, Deletion, GarbageCollection, JobSets
from sandbox.tpu_provisioner.google import CallError, ContainerApi, Metadata
from sandbox.tpu_provisioner.provider import Provider
from sandbox.tpu_provisioner.settings import SettingError, Settings, read

PANIC = 2  # exit status of a Go program that panics
_LOG = logging.getLogger("tpu-provisioner")


def main(arguments: list[str]) -> None:
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    flags = _flags(arguments)
    metadata = Metadata.found()
    try:
        settings = _completed(read(os.environ), metadata)
    except (SettingError, CallError) as error:
        sys.exit(f"unable to start: {error}")
    client = _client(flags.kubeconfig)
    recorder = Recorder(client)
    provider = Provider(settings, ContainerApi(settings, metadata), recorder, _panic)
    jobsets = JobSets(client)
    creation, deletion = Creation(client, provider, settings), Deletion(client, provider, settings, jobsets)
    _serve_probes(flags.health_probe_bind_address)
    garbage = GarbageCollection(provider, jobsets, deletion.nodes)
    threading.Thread(target=garbage.run, name="garbage-collection", daemon=True).start()
    try:
        creation.start()
        deletion.start()
    except SyncError as error:
        sys.exit(f"problem running manager: {error}")
    _LOG.info("serving %s, zone %s", settings.parent, settings.zone)
    threading.Event().wait()


def _flags(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tpu-provisioner", allow_abbrev=False)
    parser.add_argument("--kubeconfig", default=os.environ.get("KUBECONFIG", ""))
    parser.add_argument("--health-probe-bind-address", default=":8081")
    parser.add_argument("--metrics-bind-address", default=":8080")
    parser.add_argument("--leader-elect", nargs="?", const="true", default="false")
    known, others = parser.parse_known_args(arguments)
    if known.leader_elect != "false":
        parser.error("unable to find leader election namespace: not running in-cluster")
    if unknown := [each for each in others if each.startswith("-") and not each.startswith(("--zap-", "-zap-"))]:
        parser.error(f"flag provided but not defined: {unknown[0]}")
    return known


def _completed(settings: Settings, metadata: Metadata) -> Settings:
    """What is not set is taken from the metadata server. Raises CallError."""
    return replace(
        settings,
        project=settings.project or metadata.get("project/project-id"),
        cluster=settings.cluster or metadata.get("instance/attributes/cluster-name"),
        location=settings.location or metadata.get("instance/attributes/cluster-location"),
        zone=settings.zone or metadata.get("instance/zone").rpartition("/")[2],
    )


def _client(kubeconfig: str) -> ApiClient:
    """Of the current context of a kubeconfig with a token."""
    if not kubeconfig:
        sys.exit("unable to load kubeconfig: neither --kubeconfig nor KUBECONFIG says where it is")
    document = yaml.safe_load(Path(kubeconfig).read_text())
    named = {kind: {each["name"]: each for each in document[kind]} for kind in ("contexts", "clusters", "users")}
    context = named["contexts"][document["current-context"]]["context"]
    cluster, user = named["clusters"][context["cluster"]]["cluster"], named["users"][context["user"]]["user"]
    authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
    return ApiClient(cluster["server"].removeprefix("https://"), user["token"], authority)


def _panic(reason: str) -> None:
    """Ends the process from any thread, as a nil dereference does upstream."""
    said = " ".join(reason.split())
    print(f"panic: runtime error: invalid memory address or nil pointer dereference\ncause: {said}", file=sys.stderr)
    sys.stderr.flush()
    os._exit(PANIC)


class _Probe(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        known = self.path in ("/healthz", "/readyz")
        self.send_response(200 if known else 404)
        self.end_headers()
        self.wfile.write(b"ok" if known else b"")

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


def _serve_probes(address: str) -> None:
    host, _, port = address.rpartition(":")
    server = ThreadingHTTPServer((host, int(port)), _Probe)
    threading.Thread(target=server.serve_forever, name="probes", daemon=True).start()


if __name__ == "__main__":
    main(sys.argv[1:])
