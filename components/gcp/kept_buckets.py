"""What to do about a bucket that is there already when the platform is to make it."""

from collections.abc import Mapping

import pulumi

TAKEN = "Error 409"
"""Google's answer where a bucket of that name exists already, somebody's or one's own."""


def taken(project: str, bucket: str, path: str, urn: str) -> str:
    """How to find out whose bucket it is, and what to do then. `path`: of the store in the stack file; `urn`: of the
    bucket's resource."""
    return (
        f"there is a bucket {bucket} already. Names are global, so it can be anybody's. See whose it is:\n"
        f"  gcloud storage buckets describe gs://{bucket} --raw --format='yaml(projectNumber,labels)'\n"
        f"  gcloud projects describe {project} --format='value(projectNumber)'\n"
        "If the numbers differ, or you may not see it, it is somebody else's: give the store another name. If they are"
        " the same:\n"
        "- An update was interrupted while it made the bucket: bring it into the stack, and the stack file stays as it"
        f" is, with expire and keep:\n  {import_command(bucket, urn)}\n"
        f"- An earlier platform left it behind: write `bucket: {bucket}` and `mode: write` in {path}, instead of what"
        " describes a new bucket: the platform then uses it as it is, and never deletes it"
    )


def import_command(bucket: str, urn: str) -> str:
    """The command that brings a bucket into the stack, as the child of the component that its URN names.

    A URN is `urn:pulumi:STACK::PROJECT::PARENT_TYPE$TYPE::NAME`, and the component's name begins NAME. The state has
    the component by then, since it is registered before its buckets. Without `--protect=false` an import protects.
    """
    stack, project, types, name = urn.split("::")
    parent, _, kind = types.rpartition("$")
    component = name.partition("-")[0]
    child_of = f"--parent '{component}={stack}::{project}::{parent}::{component}'"
    return f"pulumi import {kind} {name} {bucket} {child_of} --protect=false --generate-code=false"


def taken_hook(project: str, paths: Mapping[str, tuple[str, str]]) -> pulumi.ErrorHook:
    """A hook that says so when a bucket cannot be made. `paths`: by the resource's name, the bucket and its path."""

    async def explain(args: pulumi.ErrorHookArgs) -> bool:
        if args.failed_operation == "create" and TAKEN in args.errors[0] and args.name in paths:
            pulumi.log.error(taken(project, *paths[args.name], args.urn))
        return False

    return pulumi.ErrorHook("bucket-taken", explain)
