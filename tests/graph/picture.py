"""Draws a recorded graph at the level of components, as Mermaid text."""

from tests.graph.recording import GraphMonitor, edges


def component_of(monitor: GraphMonitor, urn: str) -> str:
    """The component a resource belongs to, itself if it is one."""
    request = monitor.requests[urn]
    return urn if not request.custom else component_of(monitor, request.parent)


def component_edges(monitor: GraphMonitor) -> dict[str, set[str]]:
    """For each component the components its resources depend on."""
    holders = {request.parent for request in monitor.requests.values()}
    found: dict[str, set[str]] = {urn: set() for urn in monitor.requests if urn in holders}
    for urn, request in monitor.requests.items():
        if request.custom:
            mine = component_of(monitor, urn)
            found[mine] |= {component_of(monitor, other) for other in edges(monitor, urn)} - {mine}
    return {urn: needs for urn, needs in found.items() if monitor.requests[urn].type != "pulumi:pulumi:Stack"}


def reduced(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """Without edges that a longer way already shows."""

    def beyond(node: str, seen: set[str]) -> set[str]:
        for other in graph[node] - seen:
            seen.add(other)
            beyond(other, seen)
        return seen

    return {
        node: {need for need in needs if not any(need in beyond(other, set()) for other in needs - {need})}
        for node, needs in graph.items()
    }


def mermaid(monitor: GraphMonitor) -> str:
    """A Mermaid flowchart: one box a component with its resources counted, an arrow to what waits for it."""
    graph = reduced(component_edges(monitor))
    ids = {urn: f"n{index}" for index, urn in enumerate(sorted(graph))}
    lines = ["flowchart LR"]
    for urn, key in ids.items():
        kinds: dict[str, int] = {}
        for request in monitor.requests.values():
            if request.custom and request.parent == urn:
                kind = request.type.split(":")[-1]
                kinds[kind] = kinds.get(kind, 0) + 1
        content = "<br/>".join(f"{count} x {kind}" if count > 1 else kind for kind, count in sorted(kinds.items()))
        lines.append(f'  {key}["<b>{monitor.requests[urn].name}</b><br/>{content}"]')
    lines += [f"  {ids[need]} --> {ids[urn]}" for urn in ids for need in sorted(graph[urn])]
    return "\n".join(lines) + "\n"
