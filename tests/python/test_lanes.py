# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""The lanes of conftest.py, used through the command line of pytest."""

import pytest

from rules import tree

pytest_plugins = ["pytester"]

LANES = """
import random
import pytest

@pytest.mark.slow
def test_slow(): pass

@pytest.mark.gpu
@pytest.mark.slow
def test_both(): pass

def test_quick(request, seed):
    assert random.random() == random.Random(seed).random()
    assert request.node.get_closest_marker("timeout") is None
"""

RANKS = """
import random

def test_ranks(request, seed):
    assert request.node.get_closest_marker("multiproc")
    assert request.node.get_closest_marker("timeout").args == (120,)
    assert random.random() == random.Random(seed).random()
"""


@pytest.fixture
def project(pytester):
    """A project with this conftest.py, its markers, and a test of each kind."""
    conftest = tree.REPOSITORY / "tests/python/conftest.py"
    pytester.makeconftest(conftest.read_text())
    markers = ["multiproc", "conformance", "slow", "gpu", "beside", "waiting", "alone"]
    pytester.makeini("[pytest]\nmarkers =\n " + "\n ".join(markers))
    pytester.makepyfile(test_lanes=LANES)
    pytester.mkdir("multiproc")
    (pytester.path / "multiproc" / "test_ranks.py").write_text(RANKS)
    return pytester


def test_slow_and_gpu_tests_are_left_out_with_a_message(project):
    done = project.runpytest_inprocess("--seed=7")
    done.assert_outcomes(passed=2, deselected=2)
    done.stdout.fnmatch_lines(
        ["seed 7 (--seed)", "left out: 2 slow tests (run them with -m slow)"]
    )


def test_a_lane_named_by_m_runs(project):
    project.runpytest_inprocess("-m", "slow and not gpu").assert_outcomes(
        passed=1, deselected=3
    )


def test_a_test_named_in_full_runs_in_any_lane(project):
    done = project.runpytest_inprocess("test_lanes.py::test_slow")
    done.assert_outcomes(passed=1)


def test_a_folder_adds_its_tests_to_the_lane_of_the_same_name(project):
    project.runpytest_inprocess("-m", "multiproc").assert_outcomes(
        passed=1, deselected=3
    )


BESIDE = """
import pytest

@pytest.mark.beside
def test_calm(): pass
"""

ALONE = """
import pytest

pytestmark = pytest.mark.beside

@pytest.mark.alone
def test_timed(): pass
"""


@pytest.mark.parametrize(
    ("part", "passed"),
    [
        ("beside", 2),  # test_quick and test_calm
        ("waiting", 1),  # tests in multiproc without a mark
        ("alone", 1),
    ],
)
def test_each_part_runs_its_own_tests(project, part, passed):
    (project.path / "multiproc" / "test_calm.py").write_text(BESIDE)
    (project.path / "test_timed.py").write_text(ALONE)
    done = project.runpytest_inprocess(f"--part={part}")
    done.assert_outcomes(passed=passed, deselected=6 - passed)


def test_a_part_without_selected_tests_is_no_error(project):
    nothing = project.runpytest_inprocess("--part=alone", "-k", "quick")
    nothing.assert_outcomes(deselected=4)
    assert nothing.ret == pytest.ExitCode.OK
    for arguments in (["--part=alone"], []):
        nobody = project.runpytest_inprocess("-k", "nobody", *arguments)
        assert nobody.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    for part in ("beside", "waiting"):
        assert project.runpytest_inprocess("-k", "nobody", f"--part={part}").ret == 0
