"""Small commands for people and CI: `python -m tools --help`. Each imports what it needs when it runs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from tools import workload_commands
from tools.command_line import PROBLEMS, USAGE_ERROR, AsJson, File, Stack, platform_of, stack_file
from tools.generated import Generated

app = typer.Typer(
    help="Commands around a TPU platform.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(workload_commands.app, name="workload")

Write = Annotated[bool, typer.Option("--write/--check", help="Bring the files up to date, or fail if they are not.")]


@app.command()
def explain(
    stack: Stack = None,
    file: File = None,
    as_json: AsJson = False,
    as_svg: Annotated[bool, typer.Option("--svg", help="A picture, as SVG.")] = False,
    as_mermaid: Annotated[bool, typer.Option("--mermaid", help="A picture, as Mermaid.")] = False,
) -> None:
    """Show the plan of a stack file: slices, hosts, chips, waits, cost, quota. Needs no Pulumi and no account.

    Exit code 1: the configuration has errors. 2: wrong usage.
    """
    from tools import drawing
    from tools import explain as text

    if as_json + as_svg + as_mermaid > 1:
        raise typer.BadParameter("choose one of --json, --svg and --mermaid")
    platform = platform_of(stack_file(stack, file), as_json)
    if as_json:
        typer.echo(text.as_json(platform))
    elif as_svg:
        typer.echo(drawing.svg(platform), nl=False)
    elif as_mermaid:
        typer.echo(drawing.mermaid(platform), nl=False)
    else:
        from rich.console import Console

        Console().print(text.as_text(platform))


@app.command()
def init(
    stack: Annotated[str, typer.Argument(metavar="STACK", help="Name of the stack, for example prod.")],
    project: Annotated[str | None, typer.Option(help="Google Cloud project, by its id.")] = None,
    kind: Annotated[str | None, typer.Option(help="gke or self-managed; gke if unset.")] = None,
    zone: Annotated[str | None, typer.Option(help="Zone of the TPUs.")] = None,
    machine: Annotated[str | None, typer.Option(help="TPU machine type, or generation.")] = None,
    size: Annotated[str | None, typer.Option(help="Topology of one slice, or its number of chips.")] = None,
    count: Annotated[str | None, typer.Option(help="Number of slices; 1 if unset.")] = None,
    capacity: Annotated[str | None, typer.Option(help="Capacity model: docs/capacity.md.")] = None,
    reservation: Annotated[str | None, typer.Option(help="Name of the reservation.")] = None,
    teams: Annotated[str | None, typer.Option(help="Teams, separated by commas; research if unset.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the platform; tpu-STACK if unset.")] = None,
    allow_unlisted_zone: Annotated[
        bool, typer.Option("--allow-unlisted-zone", help="Take a zone that is not in the list.")
    ] = False,
    answers: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="YAML with answers, by the names of these options."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the platform that the file has.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write the stack file of a new platform. Asks on a terminal; elsewhere it takes options and --answers.

    Exit code 1: answers are missing or wrong; all are named. 2: wrong usage, or the file has a platform already.
    """
    from tools.init import run

    given = {
        "project": project,
        "kind": kind,
        "zone": zone,
        "machine": machine,
        "size": size,
        "count": count,
        "capacity": capacity,
        "reservation": reservation,
        "teams": teams,
        "name": name,
        "allow_unlisted_zone": "yes" if allow_unlisted_zone else None,
    }
    run.init(stack, {key: value for key, value in given.items() if value is not None}, answers, overwrite, as_json)


@app.command()
def gate(
    preview: Annotated[
        Path, typer.Argument(metavar="PREVIEW", help="Output of `pulumi preview --json`; - for standard input.")
    ],
    allow: Annotated[
        list[str] | None,
        typer.Option(
            "--allow",
            metavar="NAME_OR_URN",
            help="A loss that is meant; repeatable. * at the end of a name stands for a number: 'slices-train-*'.",
        ),
    ] = None,
    consented: Annotated[
        list[str] | None,
        typer.Option(
            "--consent",
            metavar="NAME_OR_URN",
            help="As --allow, but one that matches no loss is only noted: for what comments agreed to; repeatable. A "
            "pattern must say for how many: 'slices-train-*(4)'.",
        ),
    ] = None,
    as_json: AsJson = False,
    markdown: Annotated[Path | None, typer.Option("--markdown", help="Write the summary to this file as well.")] = None,
    commit: Annotated[str | None, typer.Option(help="For which commit the summary asks for consent.")] = None,
) -> None:
    """Stop a preview that deletes what is costly or hard to get back, or recreates hosts; summarise it as Markdown.

    Exit code 1: a loss that was not allowed, or a failed preview. 2: wrong usage, or no such preview.
    """
    from tools import gate as rules
    from tools import gate_report
    from tools.gate_consent import AllowError
    from tools.gate_preview import PreviewError, read

    try:
        verdict = rules.judge(read(preview), allow or (), consented or ())
        summary = gate_report.as_markdown(verdict, commit)
        if markdown:
            markdown.write_text(summary, encoding="utf-8")
    except (PreviewError, AllowError, OSError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(USAGE_ERROR) from None
    typer.echo(gate_report.as_json(verdict) if as_json else summary, nl=as_json)
    if not verdict.passes:
        raise typer.Exit(PROBLEMS)


@app.command()
def consent(
    pull_request: Annotated[int, typer.Argument(metavar="PULL_REQUEST", help="Number of the pull request.")],
    stack: Annotated[str, typer.Option("--stack", "-s", help="The stack.")],
    repository: Annotated[str, typer.Option(help="OWNER/NAME on GitHub.")],
    commit: Annotated[str, typer.Option(help="The pull request's newest commit, in full.")],
    as_json: AsJson = False,
) -> None:
    """Print the losses that comments of a pull request agree to, a name a line, for `gate --consent`. Uses `gh`.

    Standard error says which comments do not count, and why. Exit code 1 is never used. 2: GitHub cannot be asked.
    """
    from tools import consent as text

    try:
        found = text.ask(repository, pull_request, stack=stack, commit=commit)
    except text.ConsentError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(USAGE_ERROR) from None
    if as_json:
        typer.echo(text.as_json(found))
        return
    for reason in found.ignored:
        typer.echo(reason, err=True)
    for name in found.names:
        typer.echo(name)


@app.command()
def preflight(
    stack: Stack = None,
    file: File = None,
    as_json: AsJson = False,
    offline: Annotated[bool, typer.Option("--offline", help="Only what needs no account.")] = False,
) -> None:
    """Check, by reading only, whether Google Cloud can provide a stack: APIs, quota, reservations, rights.

    Exit code 1: something blocks an update, or the configuration has errors. 2: wrong usage, or Google is out of reach.
    """
    from rich.console import Console

    from platform_config.reading import stack_name
    from tools.preflight.cloud import Cloud
    from tools.preflight.findings import as_json as to_json
    from tools.preflight.findings import as_table, summary
    from tools.preflight.run import preflight as run

    path = stack_file(stack, file)
    platform = platform_of(path, as_json)
    result = run(platform, stack_name(path), None if offline else Cloud(_provider_settings(path)))
    if as_json:
        typer.echo(to_json(result.rows))
    else:
        Console().print(as_table(result.rows))
        typer.echo(f"\n{summary(result.rows)}")
    if not result.connected:
        raise typer.Exit(USAGE_ERROR)
    if result.blocked:
        raise typer.Exit(PROBLEMS)


@app.command()
def status(
    stack: Stack = None,
    file: File = None,
    as_json: AsJson = False,
    watch: Annotated[bool, typer.Option("--watch", help="Look again every few seconds, until Ctrl-C.")] = False,
    every: Annotated[int, typer.Option(min=2, metavar="SECONDS", help="With --watch: how often.")] = 15,
    kubeconfig: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="Of the cluster, instead of the stack's own.")
    ] = None,
) -> None:
    """Show a platform as it is now: slices, hosts, chips, queues, cost, and what needs a person. It only reads.

    Exit code 1: something needs a person, or the configuration has errors. 2: the cluster cannot be read, so nobody
    knows, or wrong usage.
    """
    from contextlib import suppress

    from platform_config.reading import stack_name
    from tools.status.report import as_json as to_json
    from tools.status.run import watching
    from tools.status.screen import as_text

    if as_json and watch:
        raise typer.BadParameter("choose one of --json and --watch")
    path = stack_file(stack, file)
    platform = platform_of(path, as_json)
    with watching(platform, stack_name(path), _provider_settings(path), kubeconfig) as look:
        if watch:
            with suppress(KeyboardInterrupt):
                _watch(look, every)
            return
        report = look()
    if as_json:
        typer.echo(to_json(report))
    else:
        from rich.console import Console

        Console().print(as_text(report), highlight=False)
    if report.needs_a_person:
        raise typer.Exit(PROBLEMS)
    if not report.known:
        raise typer.Exit(USAGE_ERROR)


def _watch(look: Callable[[], Any], every: int) -> None:
    """Shows what `look` finds, again and again: on a terminal in place of what was there, elsewhere below it."""
    import time

    from rich.console import Console

    from tools.status.screen import as_text

    console = Console(highlight=False)
    while True:
        shown = as_text(look())
        console.clear()
        console.print(shown)
        time.sleep(every)


@app.command("upgrade-check")
def upgrade_check(
    state: Annotated[
        typer.FileText, typer.Argument(metavar="STATE", help="Output of `pulumi stack export`; - for standard input.")
    ],
    as_json: AsJson = False,
) -> None:
    """Compare a stack's state with this version of the program: migration notes, charts, boot scripts. It only reads.

    Exit code 1: something concerns this stack, or a newer program has updated it. 2: wrong usage, or no such state.
    """
    from tools import upgrade_check as upgrade

    try:
        exported = upgrade.read(state)
    except upgrade.StateError as error:
        raise typer.BadParameter(str(error)) from None
    found = upgrade.check(exported)
    typer.echo(upgrade.as_json(found) if as_json else upgrade.as_text(found))
    if found.concerns:
        raise typer.Exit(PROBLEMS)


@app.command()
def recover(
    stack: Annotated[str, typer.Option("-s", "--stack", help="Stack; its Pulumi.<stack>.yaml is read.")],
    as_json: AsJson = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan, and change nothing.")] = False,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Do what is planned without asking.")] = False,
    holder_is_gone: Annotated[
        bool, typer.Option("--holder-is-gone", help="Unlock: whoever holds the lock does not run any more.")
    ] = False,
    ours: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME_OR_URN", help="Adopt this resource, although nothing shows that it is ours; repeatable."
        ),
    ] = None,
    forget: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME_OR_URN", help="Do not adopt this resource, and forget that it was begun; repeatable."
        ),
    ] = None,
    uninstall: Annotated[
        bool, typer.Option("--uninstall", help="Uninstall half-made helm releases that no rollback completes.")
    ] = False,
    lost_state: Annotated[
        bool, typer.Option("--lost-state", help="Adopt all that the stack file names and that exists.")
    ] = False,
    kubeconfig: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="Of the cluster, instead of the stack's own.")
    ] = None,
) -> None:
    """Bring a stack back after a killed update or a lost state: unlock, adopt what exists, settle helm, refresh.

    It deletes nothing unless --uninstall says so. Exit code 1: something is left to do, or the configuration has
    errors. 2: the stack cannot be read, or wrong usage.
    """
    import sys

    from platform_config.reading import stack_name
    from tools.recover.checkpoint import CheckpointError
    from tools.recover.engine import EngineError
    from tools.recover.plan import NamesError, Plan, Told
    from tools.recover.report import as_json as to_json
    from tools.recover.report import as_text, plan_text
    from tools.recover.run import recover as run

    path = stack_file(stack, None)
    platform = platform_of(path, as_json)

    def agree(planned: Plan) -> bool:
        if yes or not sys.stdin.isatty():
            return yes
        typer.echo(plan_text(planned), err=True)
        return typer.confirm("Do this?", err=True)

    told = Told(holder_is_gone, uninstall, lost_state, frozenset(ours or ()), frozenset(forget or ()))
    try:
        report = run(
            platform,
            path,
            stack_name(path),
            _provider_settings(path),
            kubeconfig,
            told,
            dry=dry_run,
            agree=agree,
            say=lambda line: typer.echo(line, err=True),
        )
    except (EngineError, CheckpointError, NamesError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(USAGE_ERROR) from None
    typer.echo(to_json(report) if as_json else as_text(report))
    if not report.recovered:
        if report.dry and not dry_run and not as_json:
            typer.echo("nothing was done: --yes does it", err=True)
        raise typer.Exit(PROBLEMS)


@app.command()
def pools(stack: Stack = None, file: File = None, as_json: AsJson = False) -> None:
    """List the node pools that TPU Provisioner has created in a stack's cluster. They are not in the stack's state.

    Exit code 1: a pool is in ERROR, or its JobSet is gone or ended 10 minutes ago, or the configuration has errors. 2:
    wrong usage, or the cluster or Google is out of reach.
    """
    from rich.console import Console

    from plan.tpu_provisioner import delete_command
    from tools import pools as text
    from tools.preflight.cloud import Cloud, NoConnectionError, RefusedError

    path = stack_file(stack, file)
    platform = platform_of(path, as_json)
    try:
        found = text.created_pools(platform, Cloud(_provider_settings(path)))
    except (text.ClusterError, NoConnectionError, RefusedError) as error:
        step = f" -> {error.next_step}" if isinstance(error, NoConnectionError) else ""
        typer.echo(f"error: {error}{step}", err=True)
        raise typer.Exit(USAGE_ERROR) from None
    left = [pool for pool in found if pool.problem]
    if as_json:
        typer.echo(text.as_json(found))
    elif found:
        Console().print(text.as_table(found))
    else:
        typer.echo("TPU Provisioner has created no node pool.")
    if left:
        for pool in left if not as_json else ():
            typer.echo(f"to delete it: {delete_command(platform, pool.name)}")
        raise typer.Exit(PROBLEMS)


@app.command()
def why(
    job: Annotated[
        str | None, typer.Argument(metavar="[JOB]", help="NAME or KIND/NAME; without it every job that has not ended.")
    ] = None,
    stack: Stack = None,
    file: File = None,
    namespace: Annotated[str | None, typer.Option("-n", "--namespace", help="Only of this namespace.")] = None,
    context: Annotated[str | None, typer.Option(help="Context of the kubeconfig; the current one if unset.")] = None,
    kubeconfig: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="Of the cluster, instead of your own.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say why a job does not run: queue, quota, capacity, hosts, claims, pods. Only reads, with kubectl.

    Exit code 1: a job waits for a person, or has failed, or the configuration has errors. 2: wrong usage, no such job,
    or the cluster is out of reach. 0: it runs, has ended, or waits for what comes by itself.
    """
    from rich.console import Console

    from platform_config.reading import stack_name
    from tools.why import text
    from tools.why.answer import answer
    from tools.why.cluster import Cluster, ClusterError
    from tools.why.job import JobError, job_named, unfinished

    path = stack_file(stack, file)
    platform = platform_of(path, as_json)
    cluster = Cluster(context, kubeconfig, stack_name(path))
    try:
        jobs = [job_named(cluster, job, namespace)] if job else list(unfinished(cluster, namespace))
    except (ClusterError, JobError) as error:
        typer.echo("\n".join([f"error: {error}", *(f"not seen: {line}" for line in cluster.unread)]), err=True)
        raise typer.Exit(USAGE_ERROR) from None
    answers = [answer(platform, each) for each in jobs]
    if as_json:
        typer.echo(text.as_json(answers, cluster.unread))
    elif job:
        typer.echo(f"{text.headline(answers[0])}\n")
        Console().print(text.as_table(answers[0]))
        if answers[0].todo:
            typer.echo(f"\ndo: {answers[0].todo}")
    elif answers:
        Console().print(text.as_list(answers))
    else:
        typer.echo("No job waits or runs.")
    for line in cluster.unread if not as_json else ():
        typer.echo(f"not seen: {line}", err=True)
    if any(each.state == "person" for each in answers):
        raise typer.Exit(PROBLEMS)


def _provider_settings(path: Path) -> dict[str, str]:
    """Settings of the stack's gcp provider."""
    from platform_config.stack_file import read

    return {key.removeprefix("gcp:"): value for key, value in read(path).items() if key.startswith("gcp:")}


@app.command()
def permissions(
    stack: Stack = None,
    file: File = None,
    viewer: Annotated[
        bool, typer.Option("--viewer", help="Of who only previews, and never enters the cluster.")
    ] = False,
    auditor: Annotated[bool, typer.Option("--auditor", help="Of who refreshes, also what is in the cluster.")] = False,
    billing: Annotated[
        bool, typer.Option("--billing", help="On the billing account, for a budget; by default on the project.")
    ] = False,
    role: Annotated[bool, typer.Option("--role", help="A custom role, for `gcloud iam roles create`.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With the resource types that need each.")] = False,
) -> None:
    """Print the IAM permissions that whoever deploys a stack needs, from what its program registers.

    Exit code 1: the configuration has errors, a resource type's permissions are not known, or --billing is given and
    there is no budget. 2: wrong usage.
    """
    from platform_config.reading import stack_name
    from tools import permissions as text
    from tools.registrations import registrations

    if role and as_json:
        raise typer.BadParameter("choose one of --role and --json")
    if viewer and auditor:
        raise typer.BadParameter("choose one of --viewer and --auditor")
    path = stack_file(stack, file)
    platform = platform_of(path, as_json)
    identity: text.Identity = "viewer" if viewer else "auditor" if auditor else "deployer"
    if billing and not platform.monitoring.budget:
        typer.echo("there is no monitoring.budget, so nothing is needed on the billing account", err=True)
        raise typer.Exit(PROBLEMS)
    of = text.needed_on_billing_account if billing else text.needed
    try:
        found = of(registrations(platform, stack=stack_name(path)), identity)
    except text.UnknownTypesError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(PROBLEMS) from None
    if role:
        typer.echo(text.as_role(found, stack_name(path)), nl=False)
    else:
        typer.echo(text.as_json(found) if as_json else text.as_text(found))


@app.command()
def kueue(stack: Stack = None, file: File = None, as_json: AsJson = False) -> None:
    """Print the configuration that Kueue needs for a stack's queues, to compare with that of a Kueue that exists.

    Exit code 1: the configuration has errors, or there are no queues. 2: wrong usage.
    """
    from tools import kueue as text

    platform = platform_of(stack_file(stack, file), as_json)
    try:
        typer.echo(text.as_json(platform) if as_json else text.as_text(platform), nl=as_json)
    except text.NoQueuesError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(PROBLEMS) from None


@app.command()
def schema(write: Write = False, as_json: AsJson = False) -> None:
    """Make or check the schemas of stack files and of the package. Exit code 1: one is out of date. 2: wrong usage."""
    from tools import component_schema
    from tools.schema import render

    files = {"schema/platform.schema.json": render, "package/schema.json": component_schema.render}
    _bring_up_to_date([Generated(path, made) for path, made in files.items()], write, as_json)


@app.command()
def docs(write: Write = False, as_json: AsJson = False) -> None:
    """Make or check the reference pages. Exit code 1: one is out of date. 2: wrong usage."""
    from tools.reference import PAGES

    _bring_up_to_date([Generated(f"docs/{name}", render) for name, render in PAGES.items()], write, as_json)


@app.command()
def examples(write: Write = False, as_json: AsJson = False) -> None:
    """Make or check the manifests in examples/. Exit code 1: one is out of date. 2: wrong usage."""
    from tools import examples as text

    made = text.files()
    for path in text.left_over(made) if write else ():
        path.unlink()
    _bring_up_to_date(made, write, as_json)


def _bring_up_to_date(files: list[Generated], write: bool, as_json: bool) -> None:
    stale = [file.path for file in files if (file.write() if write else not file.is_fresh())]
    if as_json:
        typer.echo(json.dumps({"written" if write else "stale": stale}))
    else:
        for path in stale:
            typer.echo(f"{path} {'is written' if write else 'is out of date: run the same command with --write'}")
    if stale and not write:
        raise typer.Exit(PROBLEMS)


if __name__ == "__main__":
    app()
