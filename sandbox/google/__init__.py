"""An emulator of the Google Cloud REST APIs that a TPU platform uses.

It stands for Kubernetes Engine, Compute Engine, IAM with its token service, Service Usage, Resource Manager, Secret
Manager, Cloud KMS, Cloud Storage and Artifact Registry.
Real: URLs, bodies and enums (Google's discovery documents), error shapes, the rules and defaults listed in the modules.
Not real: capacity, money, networks, and machines; what it does not serve answers 501.
"""

from sandbox.google.backend import ClusterBackend, ClusterEndpoint, ClusterRef, NoBackend
from sandbox.google.guests import Account, GuestCloud, Guests, Machine
from sandbox.google.server import Emulator, run, serving
from sandbox.google.world import World

__all__ = [
    "Account",
    "ClusterBackend",
    "ClusterEndpoint",
    "ClusterRef",
    "Emulator",
    "GuestCloud",
    "Guests",
    "Machine",
    "NoBackend",
    "World",
    "run",
    "serving",
]
