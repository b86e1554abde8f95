"""A program in YAML builds a platform with the component package: the real engine, its YAML host, and the package's own
process.

The engine finds the package as an executable, as a published plugin is one. The sandbox's Python host starts programs
only, so it cannot start the package by its PulumiPlugin.yaml (docs/component-package.md says what was tried by hand).
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from package.provider import TYPE
from plan.program_version import program_version
from sandbox import toolchain
from sandbox.toolchain.binary import pinned_version
from tests.sandbox.conftest import ROOT, SLIM, Project

EXAMPLE = ROOT / "package" / "examples" / "yaml"
STACK = "dev"
YAML_HOST = toolchain.LANGUAGE_YAML


@pytest.fixture
def program(project: Project) -> Project:
    """The example in place of the program of this checkout, in a sandbox with its plugins."""
    plugins = project.session.run.pulumi_home / "plugins"
    version = pinned_version(YAML_HOST.module, "github.com/pulumi/pulumi-yaml")
    host = plugins / f"language-yaml-v{version}"
    host.mkdir(exist_ok=True)
    shutil.copy(toolchain.build(YAML_HOST), host / YAML_HOST.name)
    package = plugins / f"resource-tpu-platform-v{program_version()}"
    package.mkdir(exist_ok=True)
    executable = package / "pulumi-resource-tpu-platform"
    executable.write_text(f'#!/bin/sh\nexec {sys.executable} {ROOT / "package"} "$@"\n')
    executable.chmod(0o755)
    for left in list(project.folder.iterdir()):
        left.unlink()
    shutil.copytree(EXAMPLE, project.folder, dirs_exist_ok=True)
    write(project.folder)
    return project


def write(folder: Path, **platform: Any) -> None:
    """Write the example's program with these keys of the platform set anew, and without Kueue."""
    content = yaml.safe_load((EXAMPLE / "Pulumi.yaml").read_text())
    del content["packages"]
    content["resources"]["platform"]["properties"].update(SLIM | platform)
    (folder / "Pulumi.yaml").write_text(yaml.safe_dump(content, sort_keys=False))


def test_from_mistakes_to_the_end(program: Project) -> None:
    slices = {"serve": {"machine_type": "ct6e-standard-1t", "topology": "2*4"}}
    write(program.folder, slices=slices, namespaces=["Team"])
    refused = program.fail("preview", "-s", STACK)
    assert "slices.serve.topology" in refused
    assert "namespaces[0]" in refused
    assert "Traceback" not in refused
    assert program.requests() == []

    write(program.folder)
    program.up(STACK)
    program.assert_clean(STACK)
    found = program.state(STACK)["resources"]
    below = [each for each in found if f"{TYPE}$" in each["urn"]]
    assert {each["type"] for each in found} - {each["type"] for each in below} == {
        "pulumi:pulumi:Stack",
        "pulumi:providers:gcp",
        "pulumi:providers:tpu-platform",
        "pulumi:providers:pulumi",
        TYPE,
    }
    assert program.outputs(STACK)["totals"]["chips"] == 1

    write(program.folder, zone="us-east1-d")
    assert "that is another cluster" in program.fail("preview", "-s", STACK)
    program.destroy(STACK)
