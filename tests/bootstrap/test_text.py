"""What holds for the text of the boot scripts, whatever they do."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from components.compute.boot_script import boot_script
from tests.bootstrap.machine import MOVED, SHIMS, Role

ROLES: tuple[Role, ...] = ("node", "control_plane")
STAND_INS = sorted(path for path in SHIMS.rglob("*") if path.is_file())
# Compute Engine takes 256 KB for one metadata value.
LIMIT = 64_000
FORBIDDEN = {
    "joining a cluster without verifying it": r"unsafeSkip|--insecure\b|curl\b.*\s-k\s",
    "a token that never ends": r"ttl[^\w]*\"?0\b",
    "running what was downloaded": r"curl[^|\n]*\|\s*(ba)?sh\b",
    "a version that moves": r"(?<!versions/)\blatest\b|stable-1",
    "printing every command": r"set\s+-\w*x|xtrace",
    "a template's placeholder": r"\{\{|@@|%\{",
    "listening for everybody": r"0\.0\.0\.0(?!/0\"\}\])",
}


@pytest.mark.parametrize("role", ROLES)
def test_shellcheck_finds_nothing(role: Role, tmp_path: Path) -> None:
    script = tmp_path / f"{role}.sh"
    script.write_text(boot_script(role))
    assert shellcheck(script) == ""


def test_shellcheck_finds_nothing_in_the_stand_ins() -> None:
    assert shellcheck(*STAND_INS) == ""


def test_shellcheck_finds_something_where_there_is_something(tmp_path: Path) -> None:
    script = tmp_path / "bad.sh"
    script.write_text("#!/bin/bash\nrm -rf $1\n")
    assert "SC2086" in shellcheck(script)


def shellcheck(*scripts: Path) -> str:
    beside = Path(sys.executable).with_name("shellcheck")
    command = [str(beside), "--severity", "style", "--norc", *map(str, scripts)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120).stdout


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("what", FORBIDDEN)
def test_the_scripts_do_not_do_this(role: Role, what: str) -> None:
    assert re.findall(rf".*(?:{FORBIDDEN[what]}).*", boot_script(role)) == []


@pytest.mark.parametrize("role", ROLES)
def test_the_scripts_fit_into_metadata(role: Role) -> None:
    assert len(boot_script(role).encode()) < LIMIT


@pytest.mark.parametrize("role", ROLES)
def test_no_path_of_the_scripts_escapes_the_dry_run(role: Role) -> None:
    """Every absolute path is moved below the scratch root, but for devices and what a unit file of systemd's runs."""
    code = re.sub(r"(?m)^\s*# .*", "", boot_script(role))
    left = re.findall(r"(?<![\w.:/*}$\\-])/[a-z]+[^\s\"']*", MOVED.sub("SCRATCH/", code))
    paths = {path for path in left if not path.startswith(("/dev/std", "/dev/null", "/dev/urandom", "/usr/bin/env"))}
    served = {
        "/healthz",
        "/livez",
        "/readyz",
        "/openid/v1/jwks",
        "/api/v1/namespaces/kube-public/configmaps/cluster-info",
    }
    assert paths - served == {"/usr/sbin/iptables"}
