# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Lanes, seeds and time-outs of the Python tests; the lanes are in tests/README.md."""

import random
import re
import sys
from pathlib import Path

import pytest
from hypothesis import settings

HERE = Path(__file__).parent

# Deselected unless -m names them, because some machines or users cannot run them.
ON_REQUEST = ("slow", "gpu")
# A test in one of these folders belongs to the lane with that name.
LANE_FOLDERS = ("multiproc", "conformance")
# In the order in which `make test` runs them.
PARTS = ("beside", "waiting", "alone")
# Seconds for tests without a time-out of their own; pyproject.toml has the default.
TIMEOUTS = {"slow": 900, "conformance": 300, "multiproc": 120}

# The same examples in every run, so that failures can be repeated.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")


def pytest_addoption(parser):
    parser.addoption(
        "--seed", type=int, default=0, help="seed of random, numpy and torch (0)"
    )
    parser.addoption(
        "--part",
        choices=PARTS,
        help="only tests that may run beside any others, or only those that wait for "
        "processes most of the time and may run beside their like (multiproc, unless "
        "marked otherwise), or only those that are judged by how fast something is "
        "(marked `alone`)",
    )


def pytest_report_header(config):
    return f"seed {config.getoption('seed')} (--seed)"


def pytest_configure(config):
    config.left_out = dict.fromkeys(ON_REQUEST, 0)
    config.has_other_part = False


def pytest_itemcollected(item):
    top = item.path.relative_to(HERE).parts[0] if item.path.is_relative_to(HERE) else ""
    if top in LANE_FOLDERS:
        item.add_marker(top)
    lane = next((lane for lane in TIMEOUTS if item.get_closest_marker(lane)), None)
    if lane and not item.get_closest_marker("timeout"):
        item.add_marker(pytest.mark.timeout(TIMEOUTS[lane]))


@pytest.hookimpl(trylast=True)  # after -k and -m
def pytest_collection_modifyitems(config, items):
    asked = set(re.findall(r"\w+", config.getoption("markexpr")))
    by_name = any("::" in argument for argument in config.args)
    kept, dropped = [], []
    for item in items:
        lane = next((m for m in ON_REQUEST if item.get_closest_marker(m)), None)
        if lane is None or lane in asked or by_name:
            kept.append(item)
        else:
            config.left_out[lane] += 1
            dropped.append(item)
    if part := config.getoption("part"):
        others = [item for item in kept if part_of(item) != part]
        config.has_other_part = bool(others)
        dropped += others
        kept = [item for item in kept if part_of(item) == part]
    items[:] = kept
    if dropped:
        config.hook.pytest_deselected(items=dropped)


def part_of(item):
    # Marks of the test come before marks of its file.
    marks = [mark.name for mark in item.iter_markers()]
    part = next((mark for mark in marks if mark in PARTS), None)
    return part or ("waiting" if "multiproc" in marks else "beside")


def pytest_sessionfinish(session, exitstatus):
    # All tests selected by -k may be in other parts. With -n, this process does not
    # know the tests that ran. If no part has tests, the last part reports it.
    config = session.config
    is_first = config.getoption("part") in PARTS[:-1]
    may_be_empty = is_first or config.has_other_part
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and may_be_empty:
        session.exitstatus = pytest.ExitCode.OK


def pytest_terminal_summary(terminalreporter, config):
    for lane, count in config.left_out.items():
        if count:
            terminalreporter.write_line(
                f"left out: {count} {lane} tests (run them with -m {lane})"
            )


def pytest_runtest_setup(item):
    if item.get_closest_marker("gpu"):
        import torch

        if not torch.cuda.is_available():
            pytest.skip("no NVIDIA device here")


@pytest.fixture
def group_of_one():
    """The default group of this process: an aikido group with this process as its only
    rank.
    """
    import torch.distributed as dist

    import aikido_torch  # noqa: F401

    dist.init_process_group("aikido", store=dist.HashStore(), rank=0, world_size=1)
    yield dist.group.WORLD
    if dist.is_initialized():
        dist.destroy_process_group()


@pytest.fixture
def seed(request):
    """The seed of this run, for the data of a test."""
    return request.config.getoption("seed")


@pytest.fixture(autouse=True)
def _seeded(seed):
    """Gives every test the same random state, independent of earlier tests."""
    random.seed(seed)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(seed)
    if torch := sys.modules.get("torch"):
        torch.manual_seed(seed)
