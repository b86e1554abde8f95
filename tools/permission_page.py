"""docs/permissions.md: what each resource type needs, as a page."""

from collections.abc import Iterator, Mapping

from tools.page_entry import entry
from tools.permission_table import BILLING_ACCOUNT, CHART_KINDS, GOOGLE, VERBS, Row

INTRODUCTION = """\
# Permissions

<!-- Made by `python -m tools docs --write`; edit tools/permission_table.py instead. -->

Nobody needs a basic role such as Owner or Editor. `python -m tools permissions -s <stack>` runs the program in memory
and prints what its resources need, and nothing else:

```console
$ python -m tools permissions -s prod --role > deployer.yaml
$ gcloud iam roles create tpuDeployer --project=my-project --file=deployer.yaml
$ python -m tools permissions -s prod --viewer --role > viewer.yaml      # previews only, without a way into the cluster
$ python -m tools permissions -s prod --auditor --role > auditor.yaml    # refreshes, also what is in the cluster
```

The viewer's role opens no secret and no cluster. An auditor reads everything inside, Secrets included: Helm keeps its
releases in them.

`--json` says which resource types need each permission. `python -m tools preflight -s prod` asks Google whether you
have them. The role is one project's: the host project of a shared VPC, and a project that lends a reservation, have
their own grants to make. `iam.serviceAccounts.actAs` is safer granted on the service account of the nodes than on
the project, once that account exists.

## Google Cloud

Tried against the sandbox's emulator, which refuses a call that lacks its permission. Updates are those the program
can make of a resource that stands. What is needed where a key is set comes on top of creating and updating.
"""

BILLING = """
## On the billing account

A budget belongs to the billing account, where a role of the project grants nothing. What it needs is a set of its own:
a role of the organization, granted on the account.

```console
$ python -m tools permissions -s prod --billing --role > billing.yaml    # with --viewer or --auditor: reading alone
$ gcloud iam roles create tpuBudget --organization=123456789012 --file=billing.yaml
$ gcloud billing accounts add-iam-policy-binding 01ABCD-23EF45-678901 \\
    --member=serviceAccount:deployer@my-project.iam.gserviceaccount.com \\
    --role=organizations/123456789012/roles/tpuBudget
```

Without an organization grant `roles/billing.costsManager` on the account instead; it can also read costs.
"""

INSIDE = """
## Inside a GKE cluster

IAM also grants rights inside a GKE cluster, one permission for each kind and verb; the sandbox cannot try these.
Reaching the cluster needs `container.clusters.connect`. Each object needs `get`, `list`, `create`, `update` and
`delete` on its kind; kinds that IAM has no name for, such as queues and claims, are `thirdPartyObjects`. A Helm
release needs the kinds below, and `bind` and `escalate` on roles and cluster roles, since charts give rights to
their controllers:

{kinds}.

Unverified: which permissions GKE asks for a ValidatingAdmissionPolicy and its binding. No public source names them;
here they are `thirdPartyObjects`. If `up` answers 403 there, give the deployer `roles/container.admin` or a
ClusterRoleBinding, or, for the policy of queues, set `software.kueue.refuse_unqueued: false`.

A cluster that is not GKE's does not ask IAM. The right there is a short-lived token in the secret `<platform>-access`.
Reading it takes `secretmanager.versions.access`: whoever has it administers the cluster. The deployer's role has it for
the project; the roles of viewer and auditor do not. Grant `roles/secretmanager.secretAccessor` on single secrets: to
both on `<platform>-endpoint`, which is not confidential and which every plan reads, and to an auditor on
`<platform>-access`.
"""


def permissions_page() -> str:
    """An entry for each resource type."""
    kinds = ", ".join(f"`{kind}`" for kind in CHART_KINDS)
    return "\n".join([INTRODUCTION, *_entries(GOOGLE), BILLING, *_entries(BILLING_ACCOUNT), INSIDE.format(kinds=kinds)])


def _entries(rows: Mapping[str, Row]) -> list[str]:
    return [entry(type_, "", *_needs(row)) for type_, row in rows.items()]


def _needs(row: Row) -> Iterator[str]:
    """A sentence for each set of permissions: the verbs that need it, then the keys that add to it."""
    verbs: dict[tuple[str, ...], list[str]] = {}
    for verb in VERBS:
        if permissions := tuple(dict.fromkeys(getattr(row, verb))):
            verbs.setdefault(permissions, []).append(verb)
    for permissions, names in verbs.items():
        yield f"{', '.join(names)}: {_listed(permissions)}"
    for path, permissions in row.having:
        yield f"where `{path}` is set: {_listed(permissions)}"


def _listed(permissions: tuple[str, ...]) -> str:
    return ", ".join(f"`{permission}`" for permission in dict.fromkeys(permissions))
