"""The versions that the folders of the toolchain pin."""

from __future__ import annotations

import re
from collections import defaultdict

from sandbox import toolchain

PIN = re.compile(r"^\s+(\S+) (v\S+)", re.MULTILINE)

# Programs of tests that share next to nothing, or want newer versions than the control plane.
ALONE = {"actionlint", "prometheus"}

# Modules that differ. The API server's cel-go decides what it accepts, so it stays Kubernetes' own; Kueue asks for a
# newer one. helm uses containerd 1.7, and containerd does not compile with a newer cri-api. The newest Python host that
# Pulumi publishes as a Go module is older than the engine. The others are small, and little imports them.
APART = {
    "github.com/antlr4-go/antlr/v4",
    "github.com/containerd/errdefs",
    "github.com/containerd/platforms",
    "github.com/google/cel-go",
    "github.com/grpc-ecosystem/grpc-gateway/v2",
    "github.com/moby/term",
    "github.com/pulumi/inflector",
    "github.com/pulumi/pulumi/sdk/v3",
    "go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc",
    "go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp",
    "k8s.io/cri-api",
}


def test_programs_share_what_is_compiled() -> None:
    """A module that two folders pin at two versions is compiled twice, and so is all that imports it."""
    pins: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for file in toolchain.HERE.glob("*/go.mod"):
        if file.parent.name not in ALONE:
            for module, version in PIN.findall(file.read_text()):
                pins[module][version].append(file.parent.name)
    assert len(pins) > 300, "the pins are read"
    differing = {module: dict(versions) for module, versions in pins.items() if len(versions) > 1}
    assert {m: v for m, v in differing.items() if m not in APART} == {}, (
        "raise the lower one: go mod edit -require=MODULE@VERSION in its folder, then go list -deps -mod=mod PACKAGE"
    )
    assert differing.keys() >= APART, "no longer apart: take it out of the list"
