"""Kubernetes without GKE: a control plane that this program builds on Compute Engine, or a cluster that exists.

In both, slices are managed instance groups (MIGs) whose hosts join with a token from Secret Manager. `plan.hosts` says
what a machine boots with.
"""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from platform_config.cluster import CpuPool, SystemPool
from platform_config.fields import PROJECT, Flag, KmsKey, Model, Name, Zone, quoted, text
from platform_config.network import AuthorizedNetwork

_IMAGE_CHECK, _IMAGE_SCHEMA = text(
    rf"projects/({PROJECT})/global/images/(family/)?[a-z0-9-]+", "a disk image", "projects/PROJECT/global/images/IMAGE"
)
Image = Annotated[str, _IMAGE_CHECK, _IMAGE_SCHEMA]

_VERSION_CHECK, _VERSION_SCHEMA = text(
    r"1\.[0-9]{2}\.[0-9]{1,4}",
    "an exact Kubernetes version",
    'for example "1.34.2"; the packages of hosts are pinned to it',
)
KubernetesVersion = Annotated[str, BeforeValidator(quoted), _VERSION_CHECK, _VERSION_SCHEMA]

_SECRET_CHECK, _SECRET_SCHEMA = text(
    rf"projects/({PROJECT})/secrets/[A-Za-z0-9_-]{{1,255}}",
    "a secret of Secret Manager",
    "projects/PROJECT/secrets/NAME, no version",
)
SecretName = Annotated[str, _SECRET_CHECK, _SECRET_SCHEMA]

_SERVER_CHECK, _SERVER_SCHEMA = text(
    r"https://[a-z0-9.-]+(:[0-9]{1,5})?", "the address of an API server", "for example https://10.0.0.10:6443"
)

_PEM_CHECK, _PEM_SCHEMA = text(
    r"\s*-----BEGIN CERTIFICATE-----[\s\S]+-----END CERTIFICATE-----\s*",
    "a certificate in PEM",
    "the cluster's ca.crt, which begins with -----BEGIN CERTIFICATE-----",
)

InCluster = Literal["device-plugin", "dra-driver", "jobset", "kueue", "lws", "namespaces"]
"""What slices and queues need inside a cluster, besides the platform's own objects: software by its name, and the
namespaces of workloads."""

OLDEST_WITH_DRA = "1.34"
"""First minor version with `resource.k8s.io/v1` on by default, which the DRA driver and claims need."""


class ControlPlane(Model):
    """The virtual machines that run the API server and etcd, behind one load-balanced address."""

    replicas: Literal[1, 3] = 1
    """One machine, or three; of three one may fail."""
    zones: tuple[Zone, ...] = ()
    """Zones of the machines, in turn; the platform's zone if unset."""
    machine_type: str | None = None
    """Compute Engine machine type; one that the zone offers if unset."""
    disk_size_gb: Annotated[int, Field(strict=True, ge=20, le=65536)] = 50
    """Size of the disk with etcd and the cluster's keys, in GB; a new machine takes it over."""
    access: Literal["internal", "external"] = "internal"
    """Whether the API server's address is in the VPC or on the internet."""
    authorized_networks: tuple[AuthorizedNetwork, ...] = ()
    """Who may reach the API server, besides nodes. If empty, only the VPC's node range."""
    backups: Flag = False
    """Keep hourly snapshots of etcd in a bucket of the platform's own."""
    backup_days: Annotated[int, Field(strict=True, ge=1, le=3650)] = 14
    """Days that a snapshot is kept."""

    @property
    def fronts(self) -> tuple[Literal["internal", "external"], ...]:
        """Load balancers of the API server: always the internal one, and the external one if asked for."""
        return ("internal", "external") if self.access == "external" else ("internal",)


class Joining(Model):
    """Settings of hosts that join a cluster without GKE."""

    version: KubernetesVersion = "1.34.2"
    """Kubernetes version that machines install; not newer than the control plane of a cluster that exists."""
    image: Image = "projects/ubuntu-os-cloud/global/images/family/ubuntu-2404-lts-amd64"
    """Disk image of machines without TPUs."""
    bootstrap: Flag = True
    """Hosts install what they need and join with the program's boot script; false: their images do this."""
    cpu_pools: dict[Name, CpuPool] = {}
    """Further hosts without TPUs, by name: as many as `min`, since nothing scales them."""


class SelfManagedCluster(Joining):
    """kubeadm on Compute Engine: control plane, network and hosts of its own, no host with a public address."""

    kind: Literal["self-managed"]
    """Kubernetes that this program runs on Compute Engine."""
    control_plane: ControlPlane = ControlPlane()
    """The control plane's machines."""
    system_pool: SystemPool = SystemPool()
    """The hosts that controllers run on: as many as `min`, since nothing scales them."""
    kms_key: KmsKey | None = None
    """Cloud KMS key that encrypts bootstrap secrets, the control plane's disks and backups."""


class ExistingCluster(Joining):
    """A cluster that somebody else runs: the program adds slices, software and queues, and changes nothing else."""

    kind: Literal["existing"]
    """A Kubernetes cluster that exists."""
    server: Annotated[str, _SERVER_CHECK, _SERVER_SCHEMA]
    """Address at which this program reaches the API server."""
    ca: Annotated[str, _PEM_CHECK, _PEM_SCHEMA]
    """Certificate of the cluster's own certificate authority, in PEM."""
    join_secret: SecretName
    """Secret with the hosts' short-lived join token; docs/self-managed.md has its form."""
    access_secret: SecretName
    """Secret with this program's short-lived credential; docs/self-managed.md has its form."""
    provides: tuple[InCluster, ...] = ()
    """What the cluster has already. The program neither installs nor deletes it. `namespaces`: all of them."""
