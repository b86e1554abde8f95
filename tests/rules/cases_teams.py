"""Cases of rules about teams, their storage and secrets, and registries of images."""

from typing import Any

from tests.platforms import EXISTING, EXISTING_NETWORK, SELF_MANAGED
from tests.rules.cases import V6E, Case

GROUPS = {"cluster": {"security_group": "gke-security-groups@example.com"}}
GROUP = "group:research@example.com"
OWN: dict[str, Any] = {"cluster": SELF_MANAGED}
JOINED: dict[str, Any] = {"cluster": EXISTING, "network": EXISTING_NETWORK}
MANAGER: dict[str, Any] = {
    "multikueue": {"role": "manager", "workers": {"us": {"stack": "o/p/us"}}, "slices": {"s": V6E}},
    "queues": {"q": {"namespaces": ["a"], "slices": {"s": 1}}},
}


def team(name: str = "a", **settings: Any) -> dict[str, Any]:
    """A platform with one team."""
    return {"teams": {name: settings}}


def store(name: str = "d", **settings: Any) -> dict[str, Any]:
    """A platform with one store of one team."""
    return team(storage={name: settings})


def images(**settings: Any) -> dict[str, Any]:
    return {"images": {"hub": settings}}


MOUNTED = store(mount="/data")
V4 = {"machine_type": "ct4p-hightpu-4t", "topology": "2x2x1"}
WEIGHTS = {"disk": "w", "mount": "/weights"}
DISK = store(**WEIGHTS)
TWO_TEAMS: dict[str, Any] = {"teams": {name: {"members": [f"user:{name}@example.com"]} for name in ("a", "b")}}
SECRET = team(secrets={"HF_TOKEN": "hf-token"})

ERRORS = [
    Case("namespaces", (V6E, team("kube-team")), "teams.kube-team", "the system", "another", (V6E, team("team-kube"))),
    Case(
        "team-once",
        (V6E, team() | {"namespaces": ["b", "a"]}),
        "namespaces[1]",
        "a is a team",
        "leave it out",
        (V6E, team() | {"namespaces": ["b"]}),
    ),
    Case(
        "team-members",
        (V6E, team(members=["user:ci@p.iam.gserviceaccount.com"])),
        "teams.a.members[0]",
        "is a service account",
        "write serviceAccount:ci@p.iam.gserviceaccount.com",
        (V6E, team(members=["serviceAccount:ci@p.iam.gserviceaccount.com"])),
    ),
    Case(
        "team-members",
        (V6E, team(members=["serviceAccount:eva@example.com"])),
        "teams.a.members[0]",
        "is no service account",
        "write user:eva@example.com",
        (V6E, team(members=["user:eva@example.com"])),
    ),
    Case(
        "team-members",
        (V6E, team(members=["user:eva@example.com", "user:eva@example.com"])),
        "teams.a.members[1]",
        "in the list twice",
        "name it once",
        (V6E, team(members=["user:eva@example.com"])),
    ),
    Case(
        "team-groups",
        (V6E, team(members=["user:eva@example.com", GROUP])),
        "teams.a.members[1]",
        "the cluster has no security group",
        "cluster.security_group: gke-security-groups@example.com",
        (V6E, team(members=[GROUP]) | GROUPS),
    ),
    Case(
        "team-groups-off-gke",
        (V6E, team(members=[GROUP]) | OWN),
        "teams.a.members[0]",
        "this cluster knows nobody",
        "as user:",
        (V6E, team(members=["user:eva@example.com"]) | OWN),
    ),
    Case(
        "team-off-gke",
        (V6E, SECRET | OWN),
        "teams.a.secrets",
        "an add-on of GKE",
        "make a Secret in namespace a",
        (V6E, SECRET),
    ),
    Case(
        "team-off-gke",
        (V6E, MOUNTED | OWN),
        "teams.a.storage.d.mount",
        "an add-on of GKE",
        "jobs get the address gs://my-project_tpu_a_d",
        (V6E, store() | OWN),
    ),
    Case(
        "team-off-gke",
        (V6E, store() | JOINED),
        "teams.a.storage.d",
        "no identity in Google Cloud",
        "the service account of the hosts",
        (V6E, team() | JOINED),
    ),
    *[
        Case(
            "team-of-manager",
            ({}, MANAGER | {"slices": {}} | wrong),
            f"teams.a.{key}",
            "no pod runs on a manager",
            "stack files of the workers",
            ({}, MANAGER | {"slices": {}} | team()),
        )
        for key, wrong in (("storage", store()), ("secrets", SECRET))
    ],
    Case(
        "bucket-name",
        (V6E, store("d" * 40) | {"name": "p" * 12}),
        f"teams.a.storage.{'d' * 40}",
        "has 66 characters",
        "by 3, or make a bucket",
        (V6E, store("d" * 37) | {"name": "p" * 12}),
    ),
    Case(
        "bucket-name",
        (V6E, store("google")),
        "teams.a.storage.google",
        "contains google",
        "with another name",
        (V6E, store("g")),
    ),
    Case(
        "bucket-once",
        (V6E, {"teams": {"a": {"storage": {"d": {"bucket": "my-project_tpu_b_d"}}}, "b": {"storage": {"d": {}}}}}),
        "teams.a.storage.d.bucket",
        "my-project_tpu_b_d is the bucket that teams.b.storage.d makes",
        "write `bucket: NAME` in both",
        (V6E, {"teams": {"a": {"storage": {"b-c": {}}}, "a-b": {"storage": {"c": {}}}}}),
    ),
    Case(
        "bucket-once",
        (V6E, team(storage={"d": {"bucket": "acme"}, "e": {"bucket": "acme"}})),
        "teams.a.storage.e.bucket",
        "also the bucket of teams.a.storage.d",
        "any directory",
        (V6E, {"teams": {each: {"storage": {"d": {"bucket": "acme"}}} for each in ("a", "b")}}),
    ),
    *[
        Case(
            "existing-bucket",
            (V6E, store(bucket="acme", **{key: value})),
            f"teams.a.storage.d.{key}",
            "belongs to a new bucket",
            f"leave {key} out",
            (V6E, store(**{key: value})),
        )
        for key, value in (("soft_delete", False), ("expire", "30d"), ("keep", False))
    ],
    *[
        Case(
            "store-mount",
            (V6E, store(mount=path)),
            "teams.a.storage.d.mount",
            "of the container",
            "/data",
            (V6E, store(mount="/data/tmp")),
        )
        for path in ("/tmp", "/dev/shm", "/var/run/x", "/run", "/lib64")
    ],
    Case(
        "store-mount",
        (V6E, team(storage={"d": {"mount": "/data"}, "e": {"mount": "/data/e"}})),
        "teams.a.storage.e.mount",
        "/data/e and /data of d are in each other",
        "side by side",
        (V6E, team(storage={"d": {"mount": "/data"}, "e": {"mount": "/data-e"}})),
    ),
    Case(
        "team-off-gke",
        (V6E, DISK | OWN),
        "teams.a.storage.d.disk",
        "only GKE brings the driver",
        "bucket: NAME",
        (V6E, DISK),
    ),
    *[
        Case("store-disk", (V6E, store(**WEIGHTS, **more)), f"teams.a.storage.d.{key}", "w is a disk", key, (V6E, DISK))
        for more in ({"mode": "write"}, {"bucket": "acme"}, {"keep": True}, {"use": "models"})
        for key in more
    ],
    Case("store-disk", (V6E, store(disk="w")), "teams.a.storage.d", "has no address", "add mount", (V6E, DISK)),
    Case(
        "disk-once",
        (V6E, team(storage={"d": WEIGHTS, "e": WEIGHTS | {"mount": "/other"}})),
        "teams.a.storage.e.disk",
        "also the disk of teams.a.storage.d",
        "leave one",
        (V6E, {"teams": {"a": {"storage": {"d": WEIGHTS}}, "b": {"storage": {"d": WEIGHTS}}}}),
    ),
    Case(
        "disk-hosts",
        (V4, DISK | {"zone": "us-central2-b"}),
        "teams.a.storage.d.disk",
        "hosts of s are v4, which takes no Hyperdisk ML disk",
        "use a bucket",
        (V6E, DISK),
    ),
    Case(
        "store-mount",
        (V6E, team(storage={"d": WEIGHTS, "e": {"mount": "/weights/e"}})),
        "teams.a.storage.e.mount",
        "are in each other",
        "side by side",
        (V6E, team(storage={"d": WEIGHTS, "e": {"mount": "/weights-e"}})),
    ),
    Case(
        "store-use",
        (V6E, store(use="models")),
        "teams.a.storage.d.use",
        "no effect without a mount",
        "set mount",
        (V6E, store(use="models", mount="/models")),
    ),
    Case(
        "mount-driver",
        (V6E, MOUNTED | {"cluster": {"gcs_fuse": False}}),
        "teams.a.storage.d.mount",
        "cluster.gcs_fuse is false",
        "cluster.gcs_fuse: true",
        (V6E, store() | {"cluster": {"gcs_fuse": False}}),
    ),
    Case(
        "secret-sync-version",
        (V6E, SECRET | {"cluster": {"version": "1.33"}}),
        "teams.a.secrets",
        "needs GKE 1.34 or newer",
        '"1.34"',
        (V6E, SECRET | {"cluster": {"version": "1.34"}}),
    ),
    *[
        Case(
            "team-variables",
            (V6E, team(storage={"d": {}}, secrets={name: "s"})),
            f"teams.a.secrets.{name}",
            "has this variable already",
            "another name",
            (V6E, team(storage={"d": {}}, secrets={"HF_TOKEN": "s"})),
        )
        for name in ("STORAGE_D", "TPU_WORKER_ID")
    ],
    Case(
        "image-repository",
        (V6E, images(mirror="docker-hub", repository="projects/p/locations/us/repositories/r")),
        "images.hub.mirror",
        "belongs to a new repository",
        "leave mirror or repository out",
        (V6E, images(mirror="docker-hub")),
    ),
    Case(
        "image-repository",
        (V6E, {"images": {"i" * 60: {}}}),
        f"images.{'i' * 60}",
        "more than 63 characters",
        "shorten the name by 1",
        (V6E, {"images": {"i" * 59: {}}}),
    ),
    Case(
        "image-repository",
        (V6E, {"images": {each: {"mirror": "docker-hub"} for each in ("a", "b")}}),
        "images.b.mirror",
        "images.a mirrors it already",
        "leave one of the two out",
        (V6E, {"images": {"a": {"mirror": "docker-hub"}, "b": {}}}),
    ),
    Case(
        "image-teams",
        (V6E, TWO_TEAMS | images()),
        "images.hub.teams",
        "a and b have members",
        "write `hub: {teams: [a]}`, or a repository for each team: `images: {a: {teams: [a]}, b: {teams: [b]}}`",
        (V6E, TWO_TEAMS | images(teams=["a"])),
    ),
    Case(
        "image-teams",
        (V6E, TWO_TEAMS | images(teams=["c"])),
        "images.hub.teams[0]",
        "c is not a team; there are: a, b",
        "`teams: [a]`",
        (V6E, TWO_TEAMS | images(teams=["a", "b"])),
    ),
    Case(
        "image-teams",
        (V6E, TWO_TEAMS | images(teams=["b", "b"])),
        "images.hub.teams[1]",
        "b is in the list twice",
        "name it once",
        (V6E, TWO_TEAMS | images(teams=[])),
    ),
    *[
        Case(
            "image-teams",
            (V6E, TWO_TEAMS | images(teams=["a"], **settings)),
            "images.hub.teams",
            words,
            "leave teams out",
            (V6E, TWO_TEAMS | images(**settings)),
        )
        for settings, words in (
            ({"mirror": "docker-hub"}, "nobody pushes to a mirror"),
            ({"repository": "projects/p/locations/us/repositories/r"}, "that exists is not the platform's"),
        )
    ],
]

WARNINGS = [
    Case(
        "deleted-checkpoints",
        (V6E, store(use="checkpoints", mount="/m")),
        "teams.a.storage.d",
        "another seven days",
        "soft_delete: false",
        (V6E, store(use="checkpoints", mount="/m", soft_delete=False)),
    ),
    Case(
        "team-without-queue",
        (V6E, team() | {"queues": {"q": {"namespaces": ["b"], "slices": {"s": 1}}}}),
        "teams.a",
        "no queue takes its jobs",
        "in a queue's namespaces",
        (V6E, team() | {"queues": {"q": {"namespaces": ["a"], "slices": {"s": 1}}}}),
    ),
    Case(
        "queue-of-no-team",
        (V6E, team("vision") | {"queues": {"q": {"namespaces": ["vision", "visoin"], "slices": {"s": 1}}}}),
        "queues.q.namespaces[1]",
        "visoin is no team",
        "one of vision",
        (
            V6E,
            team("vision")
            | {"namespaces": ["other"], "queues": {"q": {"namespaces": ["vision", "other"], "slices": {"s": 1}}}},
        ),
    ),
]
