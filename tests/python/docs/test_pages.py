# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Commands, paths and parts of examples that the pages name exist."""

import importlib
import re
import shlex

import pytest
import typer.main

import aikido_command
from aikido_torch import _C
from docs import pages

MAKE = re.findall(r"^([a-z][\w-]*):", (pages.ROOT / "Makefile").read_text(), re.M)
MOST_LINES_OF_README = 170
IDS = [path.name for path in pages.PAGES]


def check_command(line):
    """Raises if the command does not exist, or does not take these options."""
    program, *arguments = shlex.split(line)
    if program == "make":
        targets = [word for word in arguments if "=" not in word]
        assert set(targets) <= set(MAKE), line
    elif program == "aikido":
        check_arguments(line, *arguments)
    elif program in ("torchrun", "python"):
        files = [word for word in arguments if word.endswith(".py")]
        assert all(word == "first.py" or (pages.ROOT / word).exists() for word in files)


def check_arguments(line, name, *arguments):
    assert name in aikido_command.COMMANDS, line
    module, _ = aikido_command.COMMANDS[name]
    command = typer.main.get_command(importlib.import_module(module).app)
    try:
        command.make_context(name, list(arguments), resilient_parsing=False)
        while hasattr(command, "commands") and arguments:
            name, *arguments = arguments
            command = command.commands[name]
            command.make_context(name, list(arguments))
    except Exception as error:  # its class depends on the version of typer
        raise AssertionError(f"{line}: {error}") from error


@pytest.mark.parametrize("page", pages.PAGES, ids=IDS)
def test_each_command_of_a_page_exists(page, monkeypatch):
    monkeypatch.chdir(pages.ROOT)
    for line in pages.commands(page.read_text()):
        check_command(line)


@pytest.mark.parametrize("page", pages.PAGES, ids=IDS)
def test_each_path_of_a_page_exists(page):
    named = pages.paths(page.read_text())
    assert {path for path in named if not (pages.ROOT / path).exists()} == set()


@pytest.mark.parametrize("page", pages.PAGES, ids=IDS)
def test_each_part_of_an_example_is_found(page):
    for name, options in pages.includes(page.read_text()):
        text = (page.parent / name).read_text()
        for mark in ("start-after", "end-before", "start-at"):
            assert options.get(mark, "") in text, f"{name} lacks {options[mark]!r}"


def test_the_readme_is_short():
    lines = (pages.ROOT / "README.md").read_text().count("\n")
    assert lines <= MOST_LINES_OF_README


def test_links_of_the_readme_lead_to_files_and_headings():
    text = (pages.ROOT / "README.md").read_text()
    for name, heading in re.findall(r"\]\(([\w./-]+\.md)(?:#([\w-]+))?\)", text):
        target = (pages.ROOT / name).read_text()
        titles = re.findall(r"^#+ (.*)$", target, re.MULTILINE)
        slugs = {
            re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles
        }
        assert not heading or heading in slugs, f"{name} has no heading #{heading}"


def told_defaults(text):
    """Default by setting, as a table of the page tells it."""
    row = re.compile(r"^\| `([a-z_]+\.[a-z_]+)` \| (\w+) \|$", re.MULTILINE)
    return dict(row.findall(text))


def test_the_page_of_limits_tells_the_defaults_of_the_option_table():
    told = told_defaults((pages.ROOT / "docs/limits.md").read_text())
    real = {row["name"]: str(row["default"]) for row in _C.settings_table()}
    assert told == {name: real.get(name) for name in told}
    assert told.keys() >= {
        "heartbeat.interval_ms",
        "heartbeat.timeout_ms",
        "transport.handshake_timeout_ms",
        "shutdown.linger_ms",
        "straggler.log_bytes",
    }


def test_defaults_of_a_page_are_read():
    text = "| `a.b_ms` | 30 |\n| `c.d` | more than `a.b_ms` | 3 |\n| `e` | 1 |"
    assert told_defaults(text) == {"a.b_ms": "30"}


@pytest.mark.parametrize(
    "line",
    [
        "make everything",
        "aikido trace arm --moment 3",
        "aikido follow",
        "torchrun --nproc-per-node 3 examples/none.py",
    ],
)
def test_a_command_that_does_not_exist_is_noticed(line):
    with pytest.raises(AssertionError):
        check_command(line)


def test_what_a_page_shows_is_read():
    text = (
        "    make demo  # runs\n    aikido x \\\n      --y\n\n"
        "```python\n    make()\n```\n"
        '```{literalinclude} a.py\n:start-at: "# begin"\n```\n`csrc/base`, `docs/x.md`'
    )
    assert pages.commands(text) == ["make demo", "aikido x        --y"]
    assert pages.code_blocks(text) == ["    make()\n"]
    assert pages.includes(text) == [("a.py", {"start-at": "# begin"})]
    assert pages.paths(text) == {"csrc/base", "docs/x.md"}
