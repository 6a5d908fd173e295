# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Each fault does to a process what its name says."""

import signal
import subprocess
import sys
import threading
import time

import pytest

from aikido_torch.testing import late
from aikido_torch.testing._faults import hold_python_lock

_PROGRAM = """
import time
from aikido_torch.testing import die, late, stop
start = time.monotonic()
{call}
print("went on after", time.monotonic() - start, flush=True)
late(20)
"""


def start(call):
    return subprocess.Popen(
        [sys.executable, "-c", _PROGRAM.format(call=call)],
        stdout=subprocess.PIPE,
        text=True,
    )


def test_die_kills_at_once_or_later():
    with start("die()") as at_once, start("die(after=0.3)") as later:
        assert at_once.wait(30) == -signal.SIGKILL
        assert at_once.stdout.read() == ""
        assert later.wait(30) == -signal.SIGKILL
        assert later.stdout.read().startswith("went on after 0.0")


def test_stop_stands_still_and_goes_on():
    with start("stop(0.4)") as process:
        words = process.stdout.readline().split()
        process.kill()
    assert float(words[-1]) >= 0.4


_SLOW_TO_STOP = """(
    kill := __import__("os").kill,
    setattr(
        __import__("os"), "kill", lambda *a: (late(1.0), kill(*a))
    ),
    stop(0.0),
)"""


def test_a_process_that_stops_late_goes_on_as_well():
    with start(_SLOW_TO_STOP) as process:
        killer = threading.Timer(60.0, process.kill)
        killer.start()
        words = process.stdout.readline().split()
        killer.cancel()
        process.kill()
    assert words[:2] == ["went", "on"]


@pytest.mark.parametrize(("fault", "runs"), [(late, True), (hold_python_lock, False)])
def test_only_a_held_lock_keeps_other_threads_from_running(fault, runs):
    beats, stop = [], threading.Event()

    def beat():
        while not stop.wait(0.01):
            beats.append(time.monotonic())

    thread = threading.Thread(target=beat)
    thread.start()
    begin = time.monotonic()
    fault(0.3)
    end = time.monotonic()
    stop.set()
    thread.join()
    assert end - begin >= 0.3
    inside = [b for b in beats if begin + 0.05 < b < end - 0.05]
    assert bool(inside) == runs
