# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Every test of PyTorch's own backend suite that Gloo passes on a CPU, and four more.

How the suite is run is in suite.py, what fails and why in exceptions.toml.
"""

import tomllib

import pytest

from conformance import suite

# List all_to_all with a size for each pair of ranks, which Gloo refuses.
BEYOND_GLOO = (
    "test_all_to_all",
    "test_all_to_all_complex",
    "test_all_to_all_full_group",
    "test_all_to_all_group",
)
NAMES = suite.names_that_gloo_passes()


def read_exceptions():
    """Test name to why it fails."""
    with (suite.HERE / "exceptions.toml").open("rb") as file:
        entries = tomllib.load(file).get("failing", [])
    return {name: entry["reason"] for entry in entries for name in entry["tests"]}


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
