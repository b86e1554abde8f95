"""The rooms of the house: who may import whom, and the picture of it in docs/architecture.md."""

import ast
import os
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
READS: dict[str, set[str]] = {
    "catalogue": set(),
    "platform_config": {"catalogue"},
    "plan": {"catalogue", "platform_config"},
    "rules": {"catalogue", "platform_config", "plan"},
    "components": {"catalogue", "platform_config", "plan"},
    "policies": {"catalogue", "platform_config", "plan", "rules"},
    "package": {"platform_config", "plan", "rules", "components"},
    "tools": {"catalogue", "platform_config", "plan", "rules", "components", "policies", "package"},
    "__main__": {"platform_config", "plan", "rules", "components"},
    "sandbox": set(),
    "sandbox_adapter": {"platform_config", "plan", "sandbox"},
}
"""Each room, and the rooms that it reads. The sandbox imports nothing of the platform: it is told, by its adapter."""
LATE = {
    # The provider SDKs take a second to import: a bad stack file is refused before they are loaded.
    "__main__": {"components.platform"},
    # Each back end loads large parts of the provider SDK that the other never needs. What runs inside the cluster is
    # imported while the engine works on what is outside.
    "components.platform": {
        "components.gke.back_end",
        "components.compute.back_end",
        "components.inside_cluster",
        "components.gcp.budget",
        "components.gcp.monitoring",
        "components.teams",
        "components.federation",
        "components.collector",
    },
    # Each command loads what it needs, and nothing else.
    "tools.__main__": None,
    # Only the commands of a stack read a stack file, and make manifests of it.
    "tools.command_line": None,
    "tools.workload_commands": None,
    "tools.workload_options": None,
    "tools.serve_command": None,
    # Only the check of permissions needs the provider SDKs.
    "tools.preflight.checks": {"tools.permissions", "tools.registrations"},
}
"""Modules that import something inside a function, for speed only, and what. None: anything."""
PICTURE = re.compile(r"(<!-- rooms -->\n```mermaid\n).*?(```)", re.DOTALL)


def modules() -> dict[str, ast.Module]:
    """Every module of the rooms by its name, parsed."""
    found = {}
    for room in READS:
        for path in [ROOT / f"{room}.py"] if (ROOT / f"{room}.py").exists() else sorted((ROOT / room).rglob("*.py")):
            if {".venv", "node_modules", "tests"} & {*path.relative_to(ROOT).parts}:
                continue
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
            found[name] = ast.parse(path.read_text())
    return found


MODULES = modules()


def imports(name: str, tree: ast.AST) -> Iterator[tuple[str, bool]]:
    """Modules of the rooms that a module imports, and whether at its top."""
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            names = [
                f"{module}.{alias.name}" if f"{module}.{alias.name}" in MODULES else module for alias in node.names
            ]
        for each in names:
            if each.partition(".")[0] in READS:
                yield each, node in getattr(tree, "body", [])


def edges() -> dict[str, set[str]]:
    """By module, what it imports at its top."""
    found: dict[str, set[str]] = defaultdict(set)
    for name, tree in MODULES.items():
        found[name] |= {other for other, at_top in imports(name, tree) if at_top and other != name}
    return found


def test_no_arrow_goes_against_the_grain() -> None:
    wrong = [
        f"{name} imports {other}"
        for name, tree in MODULES.items()
        for other, _ in imports(name, tree)
        if (room := name.partition(".")[0]) != other.partition(".")[0] and other.partition(".")[0] not in READS[room]
    ]
    assert wrong == []


def test_no_module_imports_itself_by_way_of_others() -> None:
    graph, done, path = edges(), set(), []
    circles = []

    def visit(name: str) -> None:
        if name in path:
            circles.append([*path[path.index(name) :], name])
            return
        if name in done:
            return
        path.append(name)
        for other in sorted(graph.get(name, ())):
            visit(other)
        path.pop()
        done.add(name)

    for name in sorted(graph):
        if name.partition(".")[0] != "sandbox":
            visit(name)
    assert circles == []


def test_what_is_imported_late_is_so_for_speed() -> None:
    late = defaultdict(set)
    for name, tree in MODULES.items():
        for other, at_top in imports(name, tree):
            if not at_top and name.partition(".")[0] != "sandbox":
                late[name].add(other)
    assert {name: found for name, found in late.items() if LATE.get(name, set()) is not None} == {
        name: found for name, found in LATE.items() if found is not None
    }


@pytest.mark.parametrize("room", [room for room in READS if room != "sandbox"])
def test_nothing_is_imported_for_type_checkers_only_but_for_speed(room: str) -> None:
    texts = {name: ast.dump(tree) for name, tree in MODULES.items() if name.partition(".")[0] == room}
    assert [name for name, text in texts.items() if "TYPE_CHECKING" in text and name not in LATE] == []


def picture() -> str:
    """A Mermaid flowchart of the rooms: an arrow goes from what is read to who reads it."""
    seen = {
        (other.partition(".")[0], name.partition(".")[0])
        for name, tree in MODULES.items()
        for other, _ in imports(name, tree)
    }
    lines = [f"  {room.strip('_')}[{room}]" for room in READS]
    lines += [
        f"  {one.strip('_')} --> {other.strip('_')}"
        for one in READS
        for other in READS
        if one != other and (one, other) in seen
    ]
    return "\n".join(["flowchart LR", *lines]) + "\n"


def test_the_picture_shows_the_imports() -> None:
    page = ROOT / "docs" / "architecture.md"
    text = PICTURE.sub(lambda match: match[1] + picture() + match[2], page.read_text())
    assert picture() in text, "docs/architecture.md has lost its marker <!-- rooms -->"
    if os.environ.get("UPDATE_GOLDENS"):
        page.write_text(text)
    assert page.read_text() == text, "the picture is stale: rerun with UPDATE_GOLDENS=1"
