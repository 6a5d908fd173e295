# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Time that threads wait for a CPU while another process uses it."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.cpu_waits import cpu_waits, waited_between

ENDLESS = "while True: pass"


@pytest.fixture
def shared_cpu():
    """This thread shares one CPU with a process that never sleeps."""
    cpus = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cpus)})
    with subprocess.Popen([sys.executable, "-S", "-c", ENDLESS]) as other:
        yield
        other.kill()
    os.sched_setaffinity(0, cpus)


@pytest.mark.alone  # threads of a parallel test runner would wait too
@pytest.mark.skipif(
    not Path("/proc/self/schedstat").exists(), reason="this kernel does not count"
)
def test_time_without_a_cpu_is_counted_as_waiting(shared_cpu):
    before, start, ran = cpu_waits(os.getpid()), time.monotonic(), time.thread_time()
    while time.thread_time() - ran < 0.1:
        pass
    waited = waited_between(before, cpu_waits(os.getpid()))
    missing = time.monotonic() - start - (time.thread_time() - ran)
    assert waited == pytest.approx(missing, abs=0.02)
    assert waited > 0.02


def test_a_new_thread_has_waited_since_it_began():
    assert waited_between({1: 0.25}, {1: 0.5, 2: 1.0}) == pytest.approx(1.25)
    # Thread 2 has ended and is not counted any more.
    assert waited_between({1: 0.25, 2: 1.0}, {1: 0.5}) == pytest.approx(0.25)


def test_a_dead_process_still_shows_how_long_it_waited():
    with subprocess.Popen([sys.executable, "-S", "-c", ENDLESS]) as process:
        alive = cpu_waits(process.pid)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        dead = cpu_waits(process.pid)
        assert alive.keys() == dead.keys()
        assert waited_between(alive, dead) >= 0
    assert cpu_waits(process.pid) == {}
