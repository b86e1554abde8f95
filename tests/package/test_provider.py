"""The component makes the graph of a stack below itself, with the stack's outputs."""

import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format

from package.provider import TYPE
from platform_config.reading import stack_name
from tests.graph.recording import ROOT, STACK_FILES, GraphMonitor, inputs_of, record
from tests.package.program import STACK, config_of, construct, constructed, platform_of, program


def words(request: Any) -> dict[str, Any]:
    """A request without the place in the code that it comes from; what it depends on has no order."""
    plain: dict[str, Any] = json_format.MessageToDict(request)
    del plain["stackTrace"]
    plain.pop("sourcePosition", None)
    for depends in (plain, *plain.get("propertyDependencies", {}).values()):
        for key in {"dependencies", "urns"} & depends.keys():
            depends[key] = sorted(depends[key])
    return plain


def without_component(monitor: GraphMonitor) -> dict[str, Any]:
    """The requests of a program with the component, as if its children were the stack's."""
    [component], [stack] = monitor.of_type(TYPE), monitor.of_type(STACK)
    requests = {urn: words(request) for urn, request in monitor.requests.items() if urn != component}
    found: dict[str, Any] = json.loads(json.dumps(requests).replace(component, stack).replace(f"{TYPE}$", ""))
    return found


@pytest.mark.parametrize("preview", [False, True], ids=["update", "preview"])
@pytest.mark.parametrize("path", STACK_FILES, ids=stack_name)
def test_the_graph_is_that_of_the_stack(path: Path, preview: bool) -> None:
    """Request by request: inputs, dependencies, providers, protection, triggers, hooks. Only the parents are longer."""
    ours, theirs = program(path, preview), constructed(path, preview)
    assert without_component(theirs) == {urn: words(request) for urn, request in ours.requests.items()}
    assert [request.type for urn, request in theirs.requests.items() if TYPE not in urn] == [STACK]
    assert theirs.hooks.keys() == ours.hooks.keys()


@pytest.mark.parametrize("path", STACK_FILES, ids=stack_name)
def test_the_outputs_are_those_of_the_stack(path: Path) -> None:
    theirs = constructed(path, False)
    [component] = theirs.of_type(TYPE)
    assert theirs.outputs[component] == program(path, False).exports


def test_another_cluster_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The state is that of a stack whose platform is below the component."""
    path = ROOT / "Pulumi.dev.yaml"
    standing = {
        urn: inputs_of(constructed(path, False), request.name)
        for urn, request in constructed(path, False).requests.items()
        if request.custom
    }
    with pytest.raises(Exception, match="that is another cluster"):
        record(construct(platform_of(path) | {"name": "tpu-new"}), config=config_of(path), standing=standing)
    record(construct(platform_of(path)), config=config_of(path), standing=standing)


def test_post_renderers_are_found_from_the_folder_of_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = ROOT / "Pulumi.dev.yaml"
    monitor = record(construct(platform_of(path)), config=config_of(path))
    for release in ("jobset-release", "kueue-release"):
        written = Path(inputs_of(monitor, release)["postrender"])
        assert not written.is_absolute()
        assert (tmp_path / written).resolve().parent == ROOT / "components" / "postrender"
