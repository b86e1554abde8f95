"""What `up` says where a bucket is there already: whose it is has to be found out before anybody takes it over."""

from components.gcp.kept_buckets import taken

STACK = "urn:pulumi:team::tpu-platform"
URN = f"{STACK}::tpu:gcp:Buckets$gcp:storage/bucket:Bucket::buckets-research.checkpoints"
PATH = "tpu-platform:platform.teams.research.storage.checkpoints"


def test_whose_bucket_it_is_comes_before_taking_it_over() -> None:
    text = taken("my-project", "acme", PATH, URN)
    look = text.index("gcloud storage buckets describe gs://acme --raw --format='yaml(projectNumber,labels)'")
    own = text.index("gcloud projects describe my-project --format='value(projectNumber)'")
    rename = text.index("somebody else's: give the store another name")
    take_over = text.index(f"write `bucket: acme` and `mode: write` in {PATH}")
    assert look < own < rename < take_over


def test_a_create_whose_answer_was_lost_is_made_good_with_expire_and_keep() -> None:
    command = (
        "pulumi import gcp:storage/bucket:Bucket buckets-research.checkpoints acme"
        f" --parent 'buckets={STACK}::tpu:gcp:Buckets::buckets' --protect=false --generate-code=false"
    )
    assert command in taken("my-project", "acme", PATH, URN)
