"""What the platform does to its project: the APIs it enables, and what its machines may do there."""

from tests.graph.recording import GraphMonitor, inputs

# The API that serves a module of the gcp provider, where the two go by different names.
SERVED_BY = {"serviceaccount": "iam", "kms": "cloudkms", "projects": "cloudresourcemanager"}
FEATURES = {
    "gcfsConfig": ("artifactregistry", "containerfilesystem"),
    "binaryAuthorization": ("binaryauthorization",),
    "secretManagerConfig": ("secretmanager",),
    "securityPostureConfig": ("containersecurity",),
    "workloadIdentityConfig": ("iamcredentials",),
    "databaseEncryption": ("cloudkms",),
}
CLUSTER = "gcp:container/cluster:Cluster"
MEMBER = "gcp:projects/iAMMember:IAMMember"


def enabled(graph: GraphMonitor) -> set[str]:
    services = graph.of_type("gcp:projects/service:Service").values()
    return {inputs(request)["service"].removesuffix(".googleapis.com") for request in services}


def test_the_api_of_every_registered_type_is_enabled(update: GraphMonitor) -> None:
    """M5: secretmanager and binaryauthorization were used and not enabled."""
