# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""PyTorch's test suite for its own backends, from its wheel, for any backend.

The tests stay as shipped: bodies, ranks in processes of their own, a group made for
each test, exit codes. Two things change: which tests may run, and how ranks start:

- Gates that name backends are evaluated as for Gloo. Gates for "only MPI" and "eight
  ranks at least" are open. Tests that need a GPU still skip themselves.
- The lists of backends whose calls are visible in the profiler include aikido.
- Ranks are forked from a process that has imported torch, and do not import it again.

The names of the tests that must pass are in a file beside this one, one file for each
torch: the tests that Gloo passes. To write the file for the torch of this environment,
in tests/python:

    python -m conformance.suite gloo | grep ^passed | cut -f2 > conformance/FILE
"""

import contextlib
import importlib
import multiprocessing
import os
import signal
import sys
import tempfile
import time
import unittest
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import torch

HERE = Path(__file__).parent
WORLD_SIZE = 4
# Seconds for one test with all its ranks; the longest test takes six.
TIMEOUT = 40
# A test with a body that asks whether the backend is Gloo, after the group was made.
ASKS_FOR_GLOO = "test_accumulate_gradients_no_sync"


@dataclass(frozen=True)
class Ended:
    """End of one test: "passed", "skipped" or "failed", and the reason unless it
    passed.
    """

    how: str
    why: str = ""


def names_file():
    minor = ".".join(torch.__version__.split(".")[:2])
    return HERE / f"gloo_passes_torch_{minor}.txt"


def names_that_gloo_passes():
    """Names from the file; empty for a torch without a file."""
    return names_file().read_text().split() if names_file().exists() else []


# ---- in the process that runs the suite ----
def make_case(backend):
    """The class that has the tests as methods."""
    if backend != "gloo":
        importlib.import_module("aikido_torch")
    torch.set_num_threads(1)
    suite = _import_with_open_gates()
    suite.BACKEND = os.environ["BACKEND"] = backend
    suite.PROFILING_SUPPORTED_BACKENDS.append(backend)
    suite.SEND_RECV_PROFILING_SUPPORTED_BACKENDS.append(backend)

    class TestBackend(suite.TestDistBackend, suite.DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            self._spawn_processes()

        def _spawn_processes(self):
            self._start_processes(multiprocessing.get_context("fork").Process)

        @classmethod
        def _run(cls, rank, test_name, file_name, pipe, **kwargs):
            # A new process would have read this from its environment.
            suite.INIT_METHOD = os.environ["INIT_METHOD"]
            super()._run(rank, test_name, file_name, pipe, **kwargs)

        def run_test(self, test_name, parent_pipe):
            if test_name.startswith(ASKS_FOR_GLOO):
                suite.BACKEND = "gloo"
            super().run_test(test_name, parent_pipe)

    return TestBackend


def _import_with_open_gates():
    os.environ["DISTRIBUTED_TESTS_DEFAULT_TIMEOUT"] = str(TIMEOUT)
    from torch.testing._internal import common_distributed, common_utils

    # Read on import; the last two are set again for each test.
    os.environ.update(BACKEND="gloo", WORLD_SIZE=str(WORLD_SIZE))
    os.environ.update(TEMP_DIR=tempfile.gettempdir(), INIT_METHOD="file:///later")
    skip_if = common_utils.skip_but_pass_in_sandcastle_if

    def skip_if_not_for_mpi(condition, reason):
        return skip_if(condition and not reason.startswith("Only MPI supports"), reason)

    with (
        mock.patch.object(
            common_utils, "skip_but_pass_in_sandcastle_if", skip_if_not_for_mpi
        ),
        mock.patch.object(
            common_distributed, "skip_if_small_worldsize", lambda test: test
        ),
    ):
        return importlib.import_module(
            "torch.testing._internal.distributed.distributed_test"
        )


def run(case, name):
    """Runs one test in ranks of its own."""
    result = unittest.TestResult()
    case(name).run(result)
    if result.skipped:
        return Ended("skipped", result.skipped[0][1])
    for _, why in (*result.failures, *result.errors):
        return Ended("failed", why)
    return Ended("passed")


def serve(backend, pipe, output):
    """Runs the tests whose names arrive through the pipe; ends when the pipe is
    closed.
    """
    os.setsid()  # a session, so that ranks can be killed together with this process
    # All output of ranks goes to one file.
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    case = make_case(backend)
    while True:
        try:
            name = pipe.recv()
        except EOFError:
            return
        pipe.send(run(case, name))


# ---- in the process that asks ----
class Server:
    """Process that runs the suite; it is replaced when it hangs."""

    def __init__(self, backend, folder):
        self.backend = backend
        self.output = folder / "output"
        self.process = None

    def run(self, name):
        """The end of the test with this name."""
        if self.process is None:
            self._start()
        size = self.output.stat().st_size if self.output.exists() else 0
        self.pipe.send(name)
        try:
            # The suite itself ends its ranks after TIMEOUT; the start takes time, too.
            if self.pipe.poll(2 * TIMEOUT):
                return self.pipe.recv()
            why = f"still ran after {2 * TIMEOUT} s"
        except EOFError:
            why = "the process that runs the suite died"
        with self.output.open(errors="replace") as output:
            output.seek(size)
            why += "; it printed\n" + output.read()
        self.stop()
        return Ended("failed", why)

    def _start(self):
        # Not forked, because this process may have threads and other imports.
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(
            target=serve, args=(self.backend, theirs, self.output)
        )
        self.process.start()
        theirs.close()

    def stop(self):
        """Ends the process and its ranks."""
        if self.process is None:
            return
        self.pipe.close()
        # Also kills ranks that a test has left behind. The process may have ended by
        # itself.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.join()
        self.process = None


if __name__ == "__main__":
    # BACKEND [NAME...]: runs all tests or the named ones, and prints the end of each.
    case = make_case(sys.argv[1])
    for name in sys.argv[2:] or unittest.TestLoader().getTestCaseNames(case):
        begin = time.monotonic()
        ended = run(case, name)
        seconds = time.monotonic() - begin
        print(ended.how, name, f"{seconds:.2f} s", repr(ended.why), sep="\t")
