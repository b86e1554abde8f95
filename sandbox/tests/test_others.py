"""What others own in a project: there in every new world, and no part of what has to be gone in the end."""

from __future__ import annotations

import base64
from functools import partial

from sandbox.adapter import Others
from sandbox.google.others import lay
from sandbox.tests.emulated_google import PROJECT, connected

OTHERS = Others(PROJECT, buckets={"acme": "us-east5"}, secrets={"token": "text"}, accounts=("robots",))


def test_what_others_own_stays_and_does_not_count() -> None:
    with connected(fresh_project=True) as cloud:
        world = cloud.emulator.world
        world.lay_others = partial(lay, world, OTHERS)
        cloud.control("reset")
        assert cloud.inventory() == {}
        assert cloud.ok("GET", "/storage/v1/b/acme")["location"] == "US-EAST5"
        upload = "/upload/storage/v1/b/acme/o"
        cloud.http.post(upload, params={"uploadType": "media", "name": "a"}, content="x").raise_for_status()
        for api in ("secretmanager", "iam"):
            cloud.ok("POST", f"/su/v1/projects/{PROJECT}/services/{api}.googleapis.com:enable", {})
        found = cloud.ok("GET", f"/sm/v1/projects/{PROJECT}/secrets/token/versions/latest:access")
        assert base64.b64decode(found["payload"]["data"]) == b"text"
        cloud.ok("GET", f"/iam/v1/projects/{PROJECT}/serviceAccounts/robots@{PROJECT}.iam.gserviceaccount.com")
        assert cloud.inventory() == {}
        own = {"name": "own-bucket", "location": "us-east5"}
        cloud.ok("POST", f"/storage/v1/b?project={PROJECT}", own)
        assert cloud.inventory() == {"storage.buckets": ["own-bucket"]}
        cloud.control("reset")
        assert cloud.ok("GET", "/storage/v1/b/acme/o")["items"] == []
