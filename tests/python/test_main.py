# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""The command `aikido`, which is the same as `python -m aikido_torch`."""

import importlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

import aikido_command
import aikido_torch
import aikido_torch.__main__
from aikido_command import COMMANDS, app

ROOT = Path(aikido_torch.__file__).parents[1]


def run(*args):
    return CliRunner().invoke(app, list(args), prog_name="aikido")


@pytest.mark.parametrize("args", [(), ("--help",)])
def test_help_lists_every_command(args):
    text = run(*args).output
    for name, (_, line) in COMMANDS.items():
        assert re.search(rf"{name}\s+{line[:20]}", text)


def test_help_does_not_import_torch():
    program = (
        "import sys, aikido_command; sys.argv = ['aikido', '--help']\n"
        "try: aikido_command.main()\n"
        "finally: print('torch' in sys.modules)"
    )
    command = [sys.executable, "-c", program]
    told = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert told.stdout.splitlines()[-1] == "False"
    assert "doctor" in told.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_shows_its_own_help(name):
    told = run(name, "--help")
    assert told.exit_code == 0
    assert f"Usage: aikido {name}" in told.output
    own = importlib.import_module(COMMANDS[name][0]).app
    alone = CliRunner().invoke(own, ["--help"], prog_name=f"aikido {name}")
    assert told.output == alone.output


def test_options_and_exit_codes_are_those_of_the_command(tmp_path):
    told = run("pipeline", "schedule", "gpipe", "--stages", "2", "--micro-batches", "2")
    assert told.exit_code == 0, told.output
    assert run("trace", "merge", "none.trace", "--output", "x.json").exit_code == 1
    assert run("doctor", "--no-such-option").exit_code == 2


def test_a_package_that_does_not_load_gives_a_clear_error(monkeypatch):
    monkeypatch.setitem(COMMANDS, "gone", ("aikido_torch.gone", ""))
    monkeypatch.setitem(sys.modules, "aikido_torch.doctor", None)
    told = run("doctor")
    assert told.exit_code == 1
    assert told.output.startswith("aikido doctor: ")


def test_every_module_with_a_command_is_listed():
    found = set()
    for path in (ROOT / "aikido_torch").rglob("*.py"):
        is_example = path.stem == "demo"
        if 'if __name__ == "__main__"' in path.read_text() and not is_example:
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            found.add(name)
    assert found - {"aikido_torch.__main__"} == {
        module for module, _ in COMMANDS.values()
    }


def test_the_installed_command_and_the_module_are_the_same():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["scripts"] == {"aikido": "aikido_command:main"}
    assert aikido_torch.__main__.main is aikido_command.main
