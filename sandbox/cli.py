"""`python -m sandbox`: start, use and stop the sandbox of the program in this folder."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
import yaml
from rich.console import Console
from rich.markup import escape

from sandbox import demo as demonstration
from sandbox import environment, progress, toolchain, workload
from sandbox import faults as faults_of
from sandbox.adapter import AdapterError
from sandbox.hosts import choice
from sandbox.run_directory import RunDirectory
from sandbox.session import Plan, SandboxError, Session, attach, programs, start, stop
from sandbox.stacks import find_project

# Tables in a log have no terminal to fit into.
LOG_WIDTH = 120

app = typer.Typer(
    help="A local stand-in for Google Cloud, with the real Pulumi engine.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
fault = typer.Typer(
    help="Let the emulated cloud fail, to rehearse what to do. Without a command: what is staged now.",
    pretty_exceptions_enable=False,
)
app.add_typer(fault, name="fault")
console = Console(highlight=False)
if not console.is_terminal:
    console.width = max(console.width, LOG_WIDTH)

Stack = Annotated[str, typer.Option("--stack", "-s", help="Stack to work on: Pulumi.<stack>.yaml.")]
TimeScale = Annotated[
    float, typer.Option(min=0, help="Divides the real durations of Google's long operations; 0 ends them at once.")
]
ProgramDir = Annotated[
    Path | None,
    typer.Option(
        exists=True,
        file_okay=False,
        resolve_path=True,
        help="Folder with the Pulumi.yaml to run; without it this one, or the first above it that has one.",
    ),
]


def main() -> None:
    """Run the command line; errors a person can act on are printed without a traceback."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda received, _frame: sys.exit(128 + received))
    try:
        app()
    except (SandboxError, AdapterError, choice.ChoiceError, toolchain.ToolchainError) as error:
        console.print(f"[bold red]error:[/] {escape(str(error))}", soft_wrap=True)
        sys.exit(1)


@contextmanager
def _building(names: tuple[str, ...]) -> Iterator[toolchain.Tick]:
    with progress.building(console, toolchain.missing(names)) as tick:
        yield tick


def _program_dir() -> Path:
    """The folder of the program that a person stands in."""
    if found := find_project(Path.cwd()):
        return found
    raise SandboxError("there is no Pulumi.yaml here or above; go to the folder of the program")


def _run_directory() -> RunDirectory:
    """The sandbox whose shell this is, else the one of the program that a person stands in."""
    return RunDirectory.named() or RunDirectory.of(_program_dir())


def _start(program_dir: Path, *, time_scale: float, kept: bool = False) -> Session:
    pods = choice.choose()
    plan = Plan(time_scale=time_scale, kept=kept, pods=pods, plugins=_chosen_plugins())
    run = RunDirectory.named() or RunDirectory.of(program_dir)
    with _building((*toolchain.ENGINE, *programs(pods))) as tick:
        return start(run, plan, program_dir, tick)


def _chosen_plugins() -> environment.Plugins:
    """The person's choice in the environment; without one, the plugins that are installed."""
    choice = os.environ.get(environment.PLUGINS_VARIABLE) or environment.Plugins.INSTALLED
    try:
        return environment.Plugins(choice)
    except ValueError:
        known = " or ".join(environment.Plugins)
        raise SandboxError(f"{environment.PLUGINS_VARIABLE}: {choice!r} is not known -> write {known}") from None


def _running() -> Session:
    if session := attach(_run_directory()):
        return session
    raise SandboxError(
        "no sandbox of this program is running; start one with `python -m sandbox up` or `python -m sandbox shell`"
    )


def _describe(session: Session) -> None:
    """Say what of this sandbox is real and what stands in."""
    lines = {
        **json.loads(session.run.origins_file.read_text()),
        "Google Cloud": f"emulator at {session.emulator_url} (pid {session.emulator_pid})",
        "files and logs": str(session.run.root),
    }
    for name, value in lines.items():
        console.print(f"  {name:18} {escape(value)}", soft_wrap=True)


def _hints(session: Session, stack: str) -> None:
    console.print(
        f"It runs until you stop it. Look around, in {session.program_dir}:\n"
        f"  {_command('shell', '--stack', stack)}   a shell in which `pulumi` means this sandbox\n"
        f"  {_command('inventory')}   everything that exists in the emulated cloud\n"
        f"  kubectl --kubeconfig {session.run.kubeconfig} get nodes,pods -A\n"
        "Destroy and stop:\n"
        f"  {_command('shell', '--stack', stack)}, then `pulumi destroy -s {stack}`\n"
        f"  {_command('down')}   stop everything and remove it",
        soft_wrap=True,
    )


def _command(*arguments: str) -> str:
    """How the sandbox is called from here."""
    python, here = Path(sys.executable), Path.cwd()
    shown = python.relative_to(here) if python.is_relative_to(here) else python
    return shlex.join([str(shown), "-m", "sandbox", *arguments])


@app.command()
def up(stack: Stack = "dev", time_scale: TimeScale = demonstration.TIME_SCALE) -> None:
    """Start the sandbox and leave it running."""
    session = _start(_program_dir(), time_scale=time_scale, kept=True)
    console.print("The sandbox is up.")
    _describe(session)
    _hints(session, stack)


@app.command()
def down() -> None:
    """Stop the sandbox of this program and remove everything in it."""
    run = _run_directory()
    if session := attach(run):
        stop(session)
        console.print("The sandbox is stopped and removed.")
    elif run.remove():
        console.print("A sandbox that had been killed is removed.")
    else:
        console.print("No sandbox of this program is running.")


@app.command()
def status() -> None:
    """Say whether the sandbox runs, and of what it is made."""
    session = attach(_run_directory())
    if not session:
        console.print("No sandbox of this program is running.")
        raise typer.Exit(1)
    console.print("The sandbox is running.")
    _describe(session)


@app.command()
def inventory(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """List everything that exists in the emulated cloud."""
    found = _running().inventory()
    if as_json:
        print(json.dumps(found, indent=2))
    elif found:
        console.print(demonstration.inventory_table(found))
    else:
        console.print("The inventory is empty.")


Machine = Annotated[str, typer.Argument(metavar="MACHINE_TYPE", help="For example ct6e-standard-4t.")]
Zone = Annotated[str, typer.Option(help="For example us-east5-b.")]
Capacity = Annotated[str, typer.Option(help="Only on-demand, spot or flex-start; without it all.")]
Target = Annotated[str, typer.Argument(help="A node pool, a managed instance group, or a host by its name.")]
MOST_SECONDS = 30 * 86400
For = Annotated[float, typer.Option("--for", min=1, max=MOST_SECONDS, help="Seconds after which the hosts come back.")]
Stay = Annotated[bool, typer.Option("--until-cleared", help="They come back with `fault --clear`, not before.")]
REPAIR_SECONDS = 60.0


@fault.callback(invoke_without_command=True)
def faults(
    context: typer.Context,
    clear: Annotated[bool, typer.Option("--clear", help="Take everything away that is staged.")] = False,
) -> None:
    """Let the emulated cloud fail, to rehearse what to do (docs/drills.md). Without a command: what is staged now."""
    if clear and context.invoked_subcommand:
        raise SandboxError("--clear stands alone: python -m sandbox fault --clear")
    if context.invoked_subcommand:
        return
    staged = faults_of.Staged(_running())
    if clear:
        staged.clear()
    _show_staged(staged)


def _show_staged(staged: faults_of.Staged) -> None:
    lines = staged.lines()
    for line in lines:
        console.print(f"staged: {line}", soft_wrap=True, markup=False)
    if not lines:
        console.print("Nothing is staged.")


@fault.command()
def stockout(
    machine_type: Machine,
    zone: Zone,
    capacity: Capacity = "",
    machines: Annotated[int, typer.Option(min=0, help="Machines that the zone has, those in use included.")] = 0,
) -> None:
    """The zone has no more machines of a type: new pools end in ERROR, groups and pools that scale get none."""
    staged = faults_of.Staged(_running())
    staged.stock_out(machine_type, zone, capacity, machines)
    _show_staged(staged)


@fault.command()
def quota(machine_type: Machine, zone: Zone, capacity: Capacity = "") -> None:
    """The quota of a type's chips is used up: preflight shows 0, and Google refuses new pools."""
    staged = faults_of.Staged(_running())
    staged.end_quota(machine_type, zone, capacity)
    _show_staged(staged)


def _interrupt(target: str, kind: str, seconds: float, *, stay: bool) -> None:
    hosts = faults_of.Staged(_running()).interrupt(target, kind, None if stay else seconds)
    gone, come = ("1 host is", "comes") if len(hosts) == 1 else (f"{len(hosts)} hosts are", "come")
    back = "with `python -m sandbox fault --clear`" if stay else f"in {seconds:g} s"
    console.print(f"{gone} gone, and {come} back {back}:", soft_wrap=True)
    for host in hosts:
        console.print(f"  {host}", soft_wrap=True)


@fault.command()
def preempt(target: Target, seconds: For = REPAIR_SECONDS, stay: Stay = False) -> None:
    """Google takes spot hosts back."""
    _interrupt(target, "preempted", seconds, stay=stay)


@fault.command("host-lost")
def host_lost(target: Target, seconds: For = REPAIR_SECONDS, stay: Stay = False) -> None:
    """A machine fails. Of a slice of several hosts GKE makes all anew."""
    _interrupt(target, "hostError", seconds, stay=stay)


@fault.command()
def maintenance(target: Target, seconds: For = REPAIR_SECONDS, stay: Stay = False) -> None:
    """Google ends hosts for maintenance."""
    _interrupt(target, "terminateOnHostMaintenance", seconds, stay=stay)


@fault.command("api-away")
def api_away(
    seconds: Annotated[float, typer.Option("--for", min=1, help="Seconds after which they answer again.")] = 30.0,
) -> None:
    """The clusters' API servers do not answer. This command waits until they do; Ctrl-C brings them back earlier."""
    staged = faults_of.Staged(_running())
    if not staged.take_api_away():
        raise SandboxError("there is no cluster: `pulumi up` makes one")
    try:
        console.print(f"The API servers do not answer for {seconds:g} s.")
        time.sleep(seconds)
    finally:
        staged.bring_api_back()
    console.print("They answer again.")


@fault.command()
def request(
    words: Annotated[list[str], typer.Argument(metavar="KEY=VALUE...", help="kind=status status=503 path=/clusters")],
) -> None:
    """Google answers some requests wrongly: the fields of `sandbox.google.faults.Fault`."""
    staged = faults_of.Staged(_running())
    staged.stage(words)
    _show_staged(staged)


@app.command("run-for")
def run_for(
    seconds: Annotated[float, typer.Argument(min=0, help="How long the job's pods run on hosts without containers.")],
) -> None:
    """Read a job (JobSet, YAML or JSON), and print it so that its pods run for a time; for `| kubectl apply -f -`."""
    try:
        objects = [each for each in yaml.safe_load_all(sys.stdin) if each]
        for each in objects:
            if each["kind"] == "JobSet":
                workload.running_for(each, seconds)
    except (yaml.YAMLError, KeyError, TypeError) as error:
        raise SandboxError(f"what was read is no manifest of a job: {error}") from None
    print(yaml.safe_dump_all(objects, sort_keys=False), end="")


@app.command()
def env() -> None:
    """Print the variables of the running sandbox, for `eval "$(python -m sandbox env)"`."""
    wanted = environment.variables(_running().run)
    for name, value in wanted.items():
        if os.environ.get(name) != value:
            print(f"export {name}={shlex.quote(value)}")
    for name in os.environ.keys() - wanted.keys():
        print(f"unset {name}")


@app.command()
def build(
    names: Annotated[list[str] | None, typer.Argument(help="Programs to build; all of them if none is named.")] = None,
) -> None:
    """Build the sandbox's real programs into the per-user cache."""
    wanted = tuple(names or toolchain.BINARIES)
    if unknown := set(wanted) - toolchain.BINARIES.keys():
        raise SandboxError(f"unknown: {', '.join(sorted(unknown))}; known are {', '.join(toolchain.BINARIES)}")
    with _building(wanted) as tick:
        if set(toolchain.ENGINE) & set(wanted):
            toolchain.engine(tick)
        toolchain.ensure((n for n in wanted if n not in toolchain.ENGINE), tick)
    console.print(f"ready: {', '.join(wanted)}")


@app.command()
def shell(stack: Stack = "dev", time_scale: TimeScale = demonstration.TIME_SCALE) -> None:
    """Open a shell in which `pulumi` works against the sandbox; reads commands from stdin where that is no terminal.

    A sandbox started for this shell stops with it; one that was running stays.
    """
    if session := attach(_run_directory()):
        raise typer.Exit(_shell(session, stack))
    session = _start(_program_dir(), time_scale=time_scale)
    try:
        code = _shell(session, stack)
        if left := session.inventory():
            console.print(f"[yellow]stopped with {sum(map(len, left.values()))} resources left; they are gone with it")
    finally:
        stop(session)
    raise typer.Exit(code)


def _shell(session: Session, stack: str) -> int:
    bash = shutil.which("bash")
    if not bash:
        raise SandboxError("`shell` needs bash on PATH")
    command = [bash]
    if sys.stdin.isatty():
        console.print(f"`pulumi` now means this sandbox: try `pulumi preview -s {stack}`. Leave with `exit`.")
        _describe(session)
        command += ["--rcfile", str(_rcfile(session)), "-i"]
    variables = {**session.environment, "PULUMI_STACK": stack}
    # Ctrl-C belongs to what runs inside the shell.
    before = signal.signal(signal.SIGINT, lambda _number, _frame: None)
    try:
        return subprocess.run(command, cwd=session.program_dir, env=variables, check=False).returncode
    finally:
        signal.signal(signal.SIGINT, before)


def _rcfile(session: Session) -> Path:
    """The person's own bashrc, after which PATH is set again: it may put other things first."""
    path = session.run.root / "bashrc"
    path.write_text(
        "[ -f ~/.bashrc ] && . ~/.bashrc\n"
        f"export PATH={shlex.quote(session.environment['PATH'])}\n"
        'PS1="(sandbox) $PS1"\n'
    )
    return path


@app.command()
def demo(
    stack: Stack = "dev",
    keep: Annotated[bool, typer.Option("--keep", help="Leave the sandbox running, with the stack in it.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show all that the engine says, and every name.")] = False,
    time_scale: TimeScale = demonstration.TIME_SCALE,
    program_dir: ProgramDir = None,
) -> None:
    """Preview, up, a second preview without changes, a workload, destroy and an empty inventory, on one stack."""
    started = time.monotonic()
    program_dir = program_dir or _program_dir()
    if not (program_dir / f"Pulumi.{stack}.yaml").is_file():
        known = sorted(p.name.removeprefix("Pulumi.").removesuffix(".yaml") for p in program_dir.glob("Pulumi.*.yaml"))
        raise SandboxError(f"no Pulumi.{stack}.yaml in {program_dir}; there is: {', '.join(known) or 'none'}")
    session = _start(program_dir, time_scale=time_scale, kept=keep)
    console.print("The sandbox is up:")
    _describe(session)
    finished = False
    try:
        result = demonstration.Demo(session, stack, console, verbose=verbose).run(keep=keep)
        finished = not result.problems
    finally:
        if not (keep and finished):
            stop(session)
    for problem in result.problems:
        console.print(f"[bold red]error:[/] {escape(problem)}", soft_wrap=True)
    if not finished:
        raise typer.Exit(1)
    if keep:
        console.print(f"[bold green]{result.created} created, second preview {result.second_preview} changes; kept.")
        _hints(session, stack)
    else:
        console.print(f"[bold green]{demonstration.summary(result, time.monotonic() - started)}", soft_wrap=True)
