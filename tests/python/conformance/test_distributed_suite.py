# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Every test of PyTorch's own backend suite that Gloo passes on a CPU, and four more.

suite.py runs the suite; exceptions.toml lists failing tests with reasons.
"""

import os
import signal
import tomllib
from pathlib import Path

import pytest

from conformance import suite
from conformance.versions import TORCH, version

# all_to_all of lists with a size for each pair of ranks, which Gloo refuses.
BEYOND_GLOO = (
    "test_all_to_all",
    "test_all_to_all_complex",
    "test_all_to_all_full_group",
    "test_all_to_all_group",
)
NAMES = suite.names_that_gloo_passes()


def read_exceptions():
    """Reasons of tests that fail with this torch, by name."""
    with (suite.HERE / "exceptions.toml").open("rb") as file:
        entries = tomllib.load(file).get("failing", [])
    return {
        name: entry["reason"]
        for entry in entries
        if "before" not in entry or version(entry["before"]) > TORCH
        for name in entry["tests"]
    }


EXCEPTIONS = read_exceptions()


def case(name):
    reason = EXCEPTIONS.get(name)
    marks = [pytest.mark.xfail(reason=reason, strict=True)] if reason else []
    return pytest.param(name, marks=marks)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = suite.Server("aikido", tmp_path_factory.mktemp("suite"))
    yield server
    server.stop()


@pytest.mark.parametrize("name", [case(n) for n in (*NAMES, *BEYOND_GLOO) if NAMES])
def test_passes_as_with_gloo(server, name):
    ended = server.run(name)
    assert ended.how == "passed", ended.why


def test_there_is_a_list_for_this_torch():
    if not NAMES:
        pytest.skip(f"{suite.names_file().name} has not been made; suite.py says how")
    assert len(NAMES) == len(set(NAMES)) > 100


def test_no_exception_is_for_a_test_that_does_not_run():
    if NAMES:
        assert set(EXCEPTIONS) - {*NAMES, *BEYOND_GLOO} == set()


# ---- running the suite ----


def processes_of(session):
    """Process ids of the running processes of a session."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # the process has just ended
        if fields[0] != "Z" and int(fields[3]) == session:
            found.append(stat.parent.name)
    return found


def test_what_fails_dies_or_hangs_fails_alone_and_leaves_no_process(
    tmp_path, monkeypatch
):
    server = suite.Server("gloo", tmp_path)
    # The only test of the suite that Gloo cannot pass.
    ended = server.run("test_all_to_all")
    assert ended.how == "failed"
    assert "exited with error code" in ended.why
    ended = server.run("no such test")
    assert ended.how == "failed"
    assert "no such test" in ended.why
    assert server.run("test_get_backend") == suite.Ended("passed")
    session = server.process.pid
    assert processes_of(session) != []
    os.kill(session, signal.SIGSTOP)
    monkeypatch.setattr(suite, "TIMEOUT", 0.2)
    ended = server.run("test_get_backend")
    assert ended.how == "failed"
    assert "still ran after 0.4 s" in ended.why
    assert processes_of(session) == []
