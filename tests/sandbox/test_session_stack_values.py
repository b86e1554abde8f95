"""What the real engine makes of awkward stack files, beside what `explain` reads and what the sandbox hands on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from platform_config import stack_file
from platform_config.errors import ConfigErrors
from platform_config.fields import MOST_LEVELS
from platform_config.reading import given
from sandbox.tests.tiny import Run, tiny_engine

PROGRAM = """
import json, os
from pathlib import Path
import pulumi

names = [f"v{index:03}" for index in range(1000)]
Path(os.environ["RECEIVED"]).write_text(json.dumps({f"tiny:{name}": pulumi.Config().get(name) for name in names}))
"""

pytestmark = pytest.mark.sandbox

SCALARS = """
yes no on off y n Yes NO true True TRUE false null Null ~ nil none 1:30 190:20:30 1e1 1E3 1e+2 1.5e3 1e21 1e-7
0.1 1. .5 -.5 +7 0o10 0O10 -0o10 010 -010 08 0777 0x1F 0X1f -0x1 0b11 -0b11 0b12 1_000 1__0 _1 1_ 0_1 00 -0
0.0 -0.0 1.0 4.0 1e400 .e5 ._5 99999999999999999999 9223372036854775807
-9223372036854775809 18446744073709551616 123456789012345678901234567890 0777777777777777777777777
0xFFFFFFFFFFFFFFFFFF 2026-12-01 2026-1-2 2026-02-30 2024-02-29 2023-02-29 0000-01-01 0226-01-03 10000-01-01
2026-13-01 2026-12-01T10:00:00Z 2026-12-01t10:00:00Z 2026-12-01T10:00:00+02:00 2026-12-01T1:2:3Z
2026-12-01T10:00:00 2026-12-01T10:00:00.1230Z 2026-12-01T10:00:00-00:00 2026-12-01T25:00:00Z 2026-12-01T10:00Z
2026-12-01T23:59:60Z 2026-12-01T10:00:00,5Z 2026-12-01T10:00:00+24:00 2026-12-01T10:00:00+05:30 v1 1.30 1.35.2
1x1 4x4 =x <x a#b a:b
"""
"""Values as they are written, unquoted."""

SPELLED = [
    "2026-12-01 10:00:00",
    "2026-12-01 10:00:00.5",
    "2026-12-01 10:00:00 +0000 UTC",
    "2026-12-01 10:00:00Z",
    "'2026-12-01'",
    "'yes'",
    '"010"',
    '"\\u00e9\\t"',
    "!!str 5",
    "!!str yes",
    "!!int 0x10",
    "!!int '5'",
    "!!float 1",
    "!!float 1.5",
    "!!bool true",
    "!!null null",
    "!!timestamp 2026-12-01",
    "!!timestamp '2026-12-01'",
    "!!binary aGVsbG8=",
    "!own 12",
    "! 12",
    "!!set {a, b}",
    "[no, 010, 2026-12-01, null, ~, '']",
    "{no: 1, 1: a, 1.5: b, true: c, ~: d, 2026-12-01: e, 0x10: f, '9': g}",
    "{}",
    "[]",
    "'{\"a\": [1]}'",
    "'[1, 2'",
    "{a: {b: {c: [[[1e1]]]}}}",
    "[9223372036854775808, 18446744073709551615]",
    "{secure: a, b: c}",
    "&one {a: 1, b: [2026-12-01]}",
    "*one",
    "{<<: *one, a: 2}",
    "{<<: [*one, {c: 3, a: 4}], d: 5}",
    "{<<: {x: 1, <<: {x: 2, y: 3}}, z: 4}",
    "{'<<': {a: 1}, b: 2}",
    "<<",
    "[<<]",
    "&two [1, *one, *one]",
    "|\n    line\n      two\n\n    three\n",
    ">-\n    folded\n    line\n",
    "plain\n    over\n    lines",
    "",
]

FILES = {
    "empty": "",
    "only a comment": "# nothing\n",
    "null": "null\n",
    "config is null": "config:\n",
    "byte order mark": "\ufeffconfig:\n  tiny:a: 1\n",
    "no namespace": "config:\n  a: 1\n  b: {c: yes}\n",
    "long key": "config:\n  tiny:config:a: x\n",
    "two documents": "config:\n  tiny:a: 1\n---\nconfig:\n  tiny:a: 2\n",
    "the second is broken": "config:\n  tiny:a: 1\n---\n[unclosed\n",
    "a directive": "%YAML 1.1\n---\nconfig:\n  tiny:a: yes\n",
    "carriage returns": "config:\r\n  tiny:a: yes\r\n",
    "comments and a document end": "# c\nconfig: # d\n  tiny:a: 'b' # e\n...\n",
    "flow": "{config: {'tiny:a': [1, 2,], 'tiny:b': {c: d,}}}\n",
    "nested": "config:\n  tiny:a: " + "[" * 40 + "]" * 40 + "\n",
}
"""Files that the engine reads."""

REFUSED = {
    "a list": "- a\n",
    "text": "a\n",
    "config is a list": "config: [a]\n",
    "config is text": "config: a\n",
    "unclosed": "config: [unclosed\n",
    "tab": "config:\n\ttiny:a: 1\n",
    "two colons": "config:\n  tiny:a: b: c\n",
    "a key twice": "config:\n  tiny:a: {b: 1, b: 2}\n",
    "config twice": "config: {}\nconfig: {}\n",
    "a template": "config:\n  tiny:a: {{ zone }}\n",
    "a list as key": "config:\n  tiny:a: {[b]: c}\n",
    "a number as name": "config:\n  1: a\n",
    "namespaces": "config:\n  a:b:c: d\n",
    "infinite": "config:\n  tiny:a: {b: .inf}\n",
    "no number": "config:\n  tiny:a: [.nan]\n",
    "!!int": "config:\n  tiny:a: !!int abc\n",
    "!!int of a fraction": "config:\n  tiny:a: !!int 1.5\n",
    "!!bool": "config:\n  tiny:a: !!bool maybe\n",
    "!!bool of 1.1": "config:\n  tiny:a: !!bool yes\n",
    "!!timestamp": "config:\n  tiny:a: !!timestamp abc\n",
    "!!null": "config:\n  tiny:a: !!null abc\n",
    "!!binary": "config:\n  tiny:a: !!binary a\n",
    "unknown alias": "config:\n  tiny:a: *b\n",
    "recursive alias": "config:\n  tiny:a: &l {a: *l}\n",
    "quoted merge of a number": "config:\n  tiny:a: {'<<': 1}\n",
    "merge of text": "config:\n  tiny:a: {<<: b}\n",
    "merge of an alias to a list": "config:\n  tiny:l: &l [{a: 1}]\n  tiny:a: {<<: *l}\n",
    "alias bomb": "config:\n"
    + "".join(
        f"  tiny:a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" if n else "  tiny:a0: &a0 [x]\n" for n in range(9)
    ),
    "control character": 'config:\n  tiny:a: "\x01"\n',
    "reserved": "config:\n  tiny:a: @b\n",
}
"""Files that the engine refuses, and `explain` with it."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that writes down the configuration that it gets."""
    folder = tmp_path_factory.mktemp("awkward")
    (folder / "Pulumi.yaml").write_text("name: tiny\nruntime: {name: python, options: {virtualenv: .venv}}\n")
    (folder / "__main__.py").write_text(PROGRAM)
    return folder


@pytest.fixture(scope="module")
def pulumi(folder: Path) -> Iterator[Run]:
    with tiny_engine(folder) as run:
        yield run


@pytest.fixture(autouse=True)
def project_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack_file, "PROJECT_NAME", "tiny")


def plain(value: Any) -> Any:
    """A configuration value as a program understands it: JSON where it is JSON."""
    return given(value) if isinstance(value, str) else value


def engines(pulumi: Run, stack: str) -> dict[str, Any]:
    """What the engine itself reads in the committed file."""
    printed = pulumi("config", "-s", stack, "--json")
    assert printed.returncode == 0, printed.stderr
    return {key: found.get("value", "") for key, found in json.loads(printed.stdout).items()}


def test_every_value_means_the_same_to_the_engine_to_explain_and_in_the_sandbox(
    pulumi: Run, folder: Path, tmp_path: Path
) -> None:
    """`explain` read YAML 1.1, the engine reads its own: an unquoted day passed the one and broke the other."""
    path = folder / "Pulumi.values.yaml"
    values = [*SCALARS.split(), *SPELLED]
    path.write_text("config:\n" + "".join(f"  tiny:v{index:03}: {value}\n" for index, value in enumerate(values)))
    done = pulumi("preview", "-s", "values", RECEIVED=str(tmp_path / "received"))
    assert done.returncode == 0, done.stdout + done.stderr
    received = json.loads((tmp_path / "received").read_text())
    ours = stack_file.read(path)
    assert len(ours) == len(values)
    differ = {
        value: (key, plain(received.get(key)), plain(ours[key]))
        for key, value in zip(sorted(ours), values, strict=True)
        if json.dumps(plain(received.get(key)), sort_keys=True) != json.dumps(plain(ours[key]), sort_keys=True)
    }
    assert not differ


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_the_engine_reads(pulumi: Run, folder: Path, name: str) -> None:
    path = folder / "Pulumi.file.yaml"
    path.write_text(FILES[name], newline="")
    theirs, ours = engines(pulumi, "file"), stack_file.read(path)
    assert {key: plain(value) for key, value in ours.items()} == {key: plain(value) for key, value in theirs.items()}


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_that_the_engine_refuses(pulumi: Run, folder: Path, name: str) -> None:
    path = folder / "Pulumi.file.yaml"
    path.write_text(REFUSED[name])
    assert pulumi("config", "-s", "file", "--json").returncode != 0, "the engine takes it: `explain` must, too"
    with pytest.raises(ConfigErrors) as refused:
        stack_file.read(path)
    (error,) = refused.value.errors
    assert error.path == path.name
    assert error.hint


def test_a_misspelt_config_is_named_though_the_engine_reads_nothing_there(pulumi: Run, folder: Path) -> None:
    path = folder / "Pulumi.file.yaml"
    path.write_text("konfig: {}\n")
    assert engines(pulumi, "file") == {}
    with pytest.raises(ConfigErrors, match=r"did you mean config:\?"):
        stack_file.read(path)


def test_what_is_beyond_measure_is_refused_though_the_engine_takes_it(pulumi: Run, folder: Path) -> None:
    """No platform is that deep; Python's recursion would end first."""
    path = folder / "Pulumi.file.yaml"
    path.write_text("config:\n  tiny:a: " + "[" * 900 + "]" * 900 + "\n")
    assert "tiny:a" in engines(pulumi, "file")
    with pytest.raises(ConfigErrors, match=f"at most {MOST_LEVELS} levels"):
        stack_file.read(path)


def test_a_file_after_pulumi_has_rewritten_it(pulumi: Run, folder: Path) -> None:
    """`pulumi config set` writes an unquoted day as Go's text of it; `explain` refused that."""
    path = folder / "Pulumi.file.yaml"
    path.write_text("config:\n  tiny:a: {ends: 2026-12-01, at: 2026-12-01T10:00:00Z}\n")
    before = stack_file.read(path)
    assert pulumi("config", "set", "-s", "file", "--path", "tiny:a.more", "x").returncode == 0
    after = stack_file.read(path)
    assert after["tiny:a"] == {**before["tiny:a"], "more": "x"}
    assert before["tiny:a"]["ends"] == "2026-12-01 00:00:00 +0000 UTC"
