"""One real Kubernetes control plane as plain local processes: etcd, API server, controller manager, scheduler.

No kubelet is among them: kwok answers for every Node that carries the annotation `kwok.x-k8s.io/node: fake`, and makes
its pods ready at once; other Nodes are those of `sandbox.hosts`. kwok's pods of Jobs succeed after one second, or after
the time in their annotation `sandbox/run-for` ("30s"). Everything listens on 127.0.0.1, works without privileges,
containers or network, and dies with this process.
"""

from __future__ import annotations

import ipaddress
import json
import secrets
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from sandbox.kubernetes import assets
from sandbox.kubernetes.api import ApiClient, Object
from sandbox.kubernetes.egress import SOCKET_NAME, EgressProxy
from sandbox.kubernetes.loops import wait_until
from sandbox.kubernetes.pki import CertificateAuthority
from sandbox.kubernetes.supervisor import Process, Supervisor, free_ports, http_ok, port_is_free

PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok")
PKI = "pki"  # folder below a control plane's run_dir
START_SECONDS = 240.0
KEEP_SECONDS = 0.5  # how soon an API server that has ended is noticed
SERVICE_RANGE = "10.96.0.0/20"
KUBELET_CLIENT = "kube-apiserver-kubelet-client"  # the API server, as kubelets know it
FAKE_NODE = {"kwok.x-k8s.io/node": "fake"}
STATUS_SECONDS = 300.0  # how often a real kubelet writes a status in which nothing has changed
# Annotation of pods on kwok's nodes that do not start yet: somebody else takes it away.
HELD = "sandbox/waits-for-volumes"
RUN_FOR = "sandbox/run-for"  # pod annotation: how long a Job's pod runs before it succeeds, for example "30s"

# Static tokens may carry any user name, so each component gets exactly the rights upstream's RBAC gives its identity.
_USERS = {
    "admin": ("sandbox-admin", "system:masters"),
    "kube-controller-manager": ("system:kube-controller-manager", ""),
    "kube-scheduler": ("system:kube-scheduler", ""),
    "kwok": ("system:serviceaccount:kube-system:kwok-controller", ""),
}
# As kubeadm configures it: anybody may ask, RBAC decides who gets an answer.
KUBEADM_API_ARGUMENTS = (
    "--authorization-mode=Node,RBAC",
    "--anonymous-auth=true",
    "--enable-bootstrap-token-auth=true",
    "--enable-admission-plugins=NodeRestriction",
)
_PORTS = ("etcd", "etcd-peer", "api", "kube-controller-manager", "kube-scheduler", "kwok")


@dataclass(frozen=True)
class Setup:
    """How whoever makes a control plane configures it.

    `service_range` is the CIDR of its ClusterIPs, `status_seconds` how often a node writes an unchanged status.

    `by_kubeadm`: nodes join with bootstrap tokens, get certificates signed, and may then write only what is theirs.
    Otherwise it is GKE's: pods tolerate the taints of the extended resources that they ask for, and pods of the system
    priority classes are limited to namespaces with a quota for them.
    Up to `real_hosts` nodes have a real kubelet; the API server then has a certificate for them.
    """

    service_range: str = SERVICE_RANGE
    by_kubeadm: bool = False
    real_hosts: int = 0
    status_seconds: float = STATUS_SECONDS


GKE = Setup()
KUBEADM_ISSUER = "https://kubernetes.default.svc.cluster.local"  # of tokens, unless the configuration says otherwise


class ControlPlane:
    """A control plane whose data, certificates, tokens, ports and logs live in `run_dir`.

    A second start on the same folder continues with the same data under the same address. `hosted_images` are
    regular expressions for the container images whose pods kwok leaves alone, because somebody else runs and reports on
    them.
    Raises ProcessError or TimeoutError when a component does not come up, ToolchainError or AssetError when one cannot
    be built.
    """

    def __init__(
        self, run_dir: Path, admin_token: str = "", hosted_images: tuple[str, ...] = (), setup: Setup = GKE
    ) -> None:
        self._setup = setup
        self.run_dir = run_dir.resolve()
        self.run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.hosted_images = hosted_images
        self._pki = self.run_dir / PKI
        self.authority = CertificateAuthority(self._pki)
        self._settings = self._kept_settings(admin_token)
        self.supervisor = Supervisor(self.run_dir)
        self.egress = EgressProxy(self.run_dir)
        self._stopping = threading.Event()
        self._keeper: threading.Thread | None = None
        self.client = self.client_of("admin")

    @property
    def endpoint(self) -> str:
        """Address of the API server, "127.0.0.1:<port>"."""
        return f"127.0.0.1:{self._port('api')}"

    @property
    def api_port(self) -> int:
        """Where the API server listens on 127.0.0.1."""
        return self._port("api")

    @property
    def setup(self) -> Setup:
        return self._setup

    @property
    def ca_certificate(self) -> str:
        """The cluster's CA certificate, PEM in base64 as the GKE API gives it."""
        return self.authority.pair.certificate_base64()

    @property
    def admin_token(self) -> str:
        """Bearer token of a cluster administrator."""
        return str(self._settings["tokens"]["admin"])

    @property
    def kubeconfig_path(self) -> Path:
        """A kubeconfig with the administrator's token."""
        return self.kubeconfig_of("admin")

    def client_of(self, user: str) -> ApiClient:
        return ApiClient(self.endpoint, self._settings["tokens"][user], self.authority.pair.certificate)

    def kubeconfig_of(self, user: str) -> Path:
        path = self._pki / f"{user}.kubeconfig"
        return write_kubeconfig(path, {"sandbox": self}, self._settings["tokens"][user])

    def start(self) -> None:
        """Starts everything and returns when all components are ready and the namespaces exist."""
        taken = [name for name in _PORTS if not port_is_free(self._port(name))]
        if taken:
            raise OSError(f"ports kept in {self.run_dir / 'settings.json'} are taken by another program: {taken}")
        try:
            self._start_components()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stops everything in reverse order; the data stays in `run_dir`."""
        self._stopping.set()
        if self._keeper:
            self._keeper.join()
        self.supervisor.stop_all()
        self.egress.stop()
        self.client.close()

    def _start_components(self) -> None:
        programs = {name: assets.program(name) for name in PROGRAMS}
        etcd = self.supervisor.start("etcd", programs["etcd"], self._etcd_arguments())
        etcd.wait_ready(http_ok(f"http://127.0.0.1:{self._port('etcd')}/health"), START_SECONDS)
        self.egress.start(self.client)
        api = self.supervisor.start("kube-apiserver", programs["kube-apiserver"], self._api_arguments())
        token = {"Authorization": f"Bearer {self.admin_token}"}
        api.wait_ready(http_ok(f"https://{self.endpoint}/readyz", token), START_SECONDS)
        started: list[tuple[Process, str]] = []
        for name, health in (("kube-controller-manager", "healthz"), ("kube-scheduler", "readyz")):
            process = self.supervisor.start(name, programs[name], self._component_arguments(name))
            started.append((process, f"https://127.0.0.1:{self._port(name)}/{health}"))
        self._install_kwok_role()
        kwok = self.supervisor.start("kwok", programs["kwok"], self._kwok_arguments())
        started.append((kwok, f"http://127.0.0.1:{self._port('kwok')}/healthz"))
        for process, url in started:
            process.wait_ready(http_ok(url), START_SECONDS)
        self._wait_for_default_namespace()
        self._keeper = threading.Thread(target=self._keep_api_server, args=(api,), name="api-server", daemon=True)
        self._keeper.start()

    def _keep_api_server(self, process: Process) -> None:
        """Starts the API server again when it has ended, as GKE does, and as the kubelet does with a static pod."""
        arguments = self._api_arguments()
        while not self._stopping.wait(KEEP_SECONDS):
            if not process.running:
                self.supervisor.stop(process)
                process = self.supervisor.start("kube-apiserver", assets.program("kube-apiserver"), arguments)

    def _kept_settings(self, admin_token: str) -> dict[str, Any]:
        path = self.run_dir / "settings.json"
        if not path.exists():
            tokens = {user: secrets.token_urlsafe(24) for user in _USERS}
            if admin_token:
                tokens["admin"] = admin_token
            settings = {"ports": dict(zip(_PORTS, free_ports(len(_PORTS)), strict=True)), "tokens": tokens}
            path.touch(mode=0o600)
            path.write_text(json.dumps(settings))
        kept: dict[str, Any] = json.loads(path.read_text())
        return kept

    def _port(self, name: str) -> int:
        return int(self._settings["ports"][name])

    def _etcd_arguments(self) -> list[str]:
        data = self.run_dir / "etcd"
        data.mkdir(mode=0o700, exist_ok=True)
        client, peer = (f"http://127.0.0.1:{self._port(name)}" for name in ("etcd", "etcd-peer"))
        return [
            f"--data-dir={data}",
            "--unsafe-no-fsync",
            "--log-level=warn",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
        ]

    def _api_arguments(self) -> list[str]:
        api_service = next(ipaddress.ip_network(self._setup.service_range).hosts())  # the Service kubernetes.default
        names = ["127.0.0.1", "localhost", "kubernetes.default.svc", str(api_service)]
        serving = self.authority.issue("apiserver", names)
        front_proxy = self.authority.issue("front-proxy-client", ["front-proxy-client"])
        accounts = self.authority.signing_key("service-accounts")
        authority = self.authority.pair.certificate
        return [
            f"--etcd-servers=http://127.0.0.1:{self._port('etcd')}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._port('api')}",
            "--advertise-address=127.0.0.1",  # together with "none": no default route is needed
            "--endpoint-reconciler-type=none",
            f"--tls-cert-file={serving.certificate}",
            f"--tls-private-key-file={serving.key}",
            f"--client-ca-file={authority}",
            f"--token-auth-file={self._write_tokens()}",
            "--allow-privileged=true",
            f"--service-cluster-ip-range={self._setup.service_range}",
            f"--service-account-issuer={KUBEADM_ISSUER if self._setup.by_kubeadm else f'https://{self.endpoint}'}",
            f"--service-account-key-file={accounts.certificate}",
            f"--service-account-signing-key-file={accounts.key}",
            f"--requestheader-client-ca-file={authority}",
            "--requestheader-allowed-names=front-proxy-client",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            f"--proxy-client-cert-file={front_proxy.certificate}",
            f"--proxy-client-key-file={front_proxy.key}",
            f"--egress-selector-config-file={self._write_egress_selector()}",
            "--profiling=false",
            *(KUBEADM_API_ARGUMENTS if self._setup.by_kubeadm else self._gke_api_arguments()),
            *(self._kubelet_arguments() if self._setup.real_hosts else ()),
        ]

    def _kubelet_arguments(self) -> list[str]:
        """As kubeadm writes them."""
        client = self.authority.issue(KUBELET_CLIENT, [])
        return [
            f"--kubelet-client-certificate={client.certificate}",
            f"--kubelet-client-key={client.key}",
            f"--kubelet-certificate-authority={self.authority.pair.certificate}",
            "--kubelet-preferred-address-types=InternalIP",
        ]

    def _gke_api_arguments(self) -> list[str]:
        real = bool(self._setup.real_hosts)
        return [
            f"--authorization-mode={'Node,' if real else ''}RBAC",
            "--anonymous-auth=false",
            f"--enable-admission-plugins=ExtendedResourceToleration{',NodeRestriction' if real else ''}",
            f"--admission-control-config-file={self._write_admission()}",
        ]

    def _component_arguments(self, name: str) -> list[str]:
        kubeconfig = self.kubeconfig_of(name)
        arguments = [
            f"--kubeconfig={kubeconfig}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._port(name)}",
            f"--cert-dir={self.run_dir / 'tmp' / name}",
            "--leader-elect=false",
            "--profiling=false",
        ]
        if name == "kube-controller-manager":
            arguments += [
                "--use-service-account-credentials=true",
                f"--service-account-private-key-file={self.authority.signing_key('service-accounts').key}",
                f"--root-ca-file={self.authority.pair.certificate}",
            ]
            if self._setup.by_kubeadm:
                arguments += [
                    "--controllers=*,bootstrapsigner,tokencleaner",
                    f"--cluster-signing-cert-file={self.authority.pair.certificate}",
                    f"--cluster-signing-key-file={self.authority.pair.key}",
                ]
        return arguments

    def _kwok_arguments(self) -> list[str]:
        config = self.run_dir / "kwok.yaml"
        config.write_text(yaml.safe_dump_all(kwok_configuration(self.hosted_images, self._setup.status_seconds)))
        port = self._port("kwok")
        return [
            f"--kubeconfig={self.kubeconfig_of('kwok')}",
            f"--config={config}",
            f"--server-address=127.0.0.1:{port}",
            "--node-ip=10.128.0.99",
            f"--node-port={port}",
        ]

    def _install_kwok_role(self) -> None:
        for each in assets.kwok_files()["role"]:
            self.client.apply(each)
        group = "rbac.authorization.k8s.io"
        self.client.apply(
            {
                "apiVersion": f"{group}/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": "kwok-controller"},
                "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "kwok-controller"},
                "subjects": [{"kind": "ServiceAccount", "name": "kwok-controller", "namespace": "kube-system"}],
            }
        )

    def _write_tokens(self) -> Path:
        path = self._pki / "tokens.csv"
        path.touch(mode=0o600)
        tokens = self._settings["tokens"]
        rows = (f'{tokens[user]},{name},{user},"{groups}"\n' for user, (name, groups) in _USERS.items())
        path.write_text("".join(rows))
        return path

    def _write_admission(self) -> Path:
        """As on GKE, pods of the system priority classes need a ResourceQuota of their namespace that allows them."""
        classes = ["system-node-critical", "system-cluster-critical"]
        scope = {"scopeName": "PriorityClass", "operator": "In", "values": classes}
        quota = {
            "apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "ResourceQuotaConfiguration",
            "limitedResources": [{"resource": "pods", "matchScopes": [scope]}],
        }
        document = {
            "apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "AdmissionConfiguration",
            "plugins": [{"name": "ResourceQuota", "configuration": quota}],
        }
        path = self.run_dir / "admission.json"
        path.write_text(json.dumps(document))
        return path

    def _write_egress_selector(self) -> Path:
        # The socket's path is relative to the API server's working directory, which is the run directory.
        transport = {"uds": {"udsName": SOCKET_NAME}}
        connection = {"proxyProtocol": "HTTPConnect", "transport": transport}
        path = self.run_dir / "egress-selector.json"
        document = {
            "apiVersion": "apiserver.k8s.io/v1beta1",
            "kind": "EgressSelectorConfiguration",
            "egressSelections": [{"name": "cluster", "connection": connection}],
        }
        path.write_text(json.dumps(document))
        return path

    def _wait_for_default_namespace(self) -> None:
        """Pods cannot be created before the controller manager has made the default service account."""

        def ready() -> bool:
            return self.client.get("v1", "ServiceAccount", "default", "default") is not None

        wait_until("service account of the default namespace", ready, START_SECONDS)


def write_kubeconfig(path: Path, planes: Mapping[str, ControlPlane], token: str) -> Path:
    """A self-contained kubeconfig for one bearer token: a context for each control plane, the last one current.

    `planes` is not empty. A reader sees the old file or the new one, never half of one.
    """
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": list(planes)[-1],
        "contexts": [{"name": name, "context": {"cluster": name, "user": "sandbox"}} for name in planes],
        "clusters": [{"name": name, "cluster": _address(plane)} for name, plane in planes.items()],
        "users": [{"name": "sandbox", "user": {"token": token}}],
    }
    draft = path.with_name(f".{path.name}")
    draft.touch(mode=0o600)
    draft.write_text(json.dumps(document))
    return draft.replace(path)


def _address(plane: ControlPlane) -> Object:
    return {"server": f"https://{plane.endpoint}", "certificate-authority-data": plane.ca_certificate}


def kwok_configuration(hosted_images: tuple[str, ...], status_seconds: float) -> list[Object]:
    """kwok's upstream stages, with four changes.

    Job pods run as long as they say, hosted pods and those that wait for volumes are left alone, and an unchanged node
    status is written every `status_seconds`.
    """
    options = {
        "manageAllNodes": False,
        "manageNodesWithAnnotationSelector": ",".join(f"{key}={value}" for key, value in FAKE_NODE.items()),
        # A configuration file replaces kwok's defaults as a whole, so these have to be said again.
        "cidr": "10.0.0.0/16",
        "nodeLeaseDurationSeconds": 40,
        "nodeLeaseParallelism": 4,
        "podPlayStageParallelism": 4,
        "nodePlayStageParallelism": 4,
        "enableCRDs": [],
    }
    files = assets.kwok_files()
    ready, complete = files["pod-ready"][0], files["pod-complete"][0]
    heartbeat = files["node-heartbeat-with-lease"][0]
    milliseconds = round(status_seconds * 1000)
    heartbeat["spec"]["delay"] = {
        "durationMilliseconds": milliseconds,
        "jitterDurationMilliseconds": milliseconds + milliseconds // 60,
    }
    if hosted_images:
        pattern = json.dumps(f"^({'|'.join(hosted_images)})$")
        hosted = {"key": f".spec.containers[].image | test({pattern})", "operator": "NotIn", "values": ["true"]}
        ready["spec"]["selector"]["matchExpressions"].append(hosted)
    ready["spec"]["selector"]["matchExpressions"].append(
        {"key": f'.metadata.annotations["{HELD}"]', "operator": "DoesNotExist"}
    )
    run_for = {"expressionFrom": f'.metadata.annotations["{RUN_FOR}"]'}
    complete["spec"]["delay"] = {"durationMilliseconds": 1000, "durationFrom": run_for}
    del complete["spec"]["weightFrom"]
    return [
        {"apiVersion": "config.kwok.x-k8s.io/v1alpha1", "kind": "KwokConfiguration", "options": options},
        *files["node-initialize"],
        heartbeat,
        ready,
        complete,
        *files["pod-delete"],
    ]
