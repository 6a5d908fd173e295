# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""The suite that PyTorch runs on its own backends, from its wheel, for any backend.

What is tested stays as shipped: bodies, ranks in processes of their own, a group made
for each test, exit codes. What changes is who may take part and how ranks start:

- Gates that name backends are evaluated as for Gloo, those for "only MPI" and "eight
  ranks at least" are open. Tests that need a GPU still skip themselves.
- The lists of backends whose calls show up in the profiler have ours too.
- Ranks are forked from a process that has imported torch; they do not do so again.

The names that must pass are in a file beside this one, one for each torch: those that
Gloo passes. To write the one for the torch of this environment, in tests/python:

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
# Seconds for one test with all its ranks; the longest takes six.
TIMEOUT = 40
# Tests whose bodies ask whether the backend is Gloo, with the group already made.
ASKS_FOR_GLOO = "test_accumulate_gradients_no_sync"


@dataclass(frozen=True)
class Ended:
    """How one test ended: "passed", "skipped" or "failed", and why not passed."""

    how: str
    why: str = ""


def names_file():
    minor = ".".join(torch.__version__.split(".")[:2])
    return HERE / f"gloo_passes_torch_{minor}.txt"


def names_that_gloo_passes():
    """From the file; empty for a torch that it was never written for."""
    return names_file().read_text().split() if names_file().exists() else []


# ---- In the process that runs the suite ----
def make_case(backend):
    """The class whose methods are the tests."""
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
            # What a new process would have read from its environment.
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

    # Read on import; the two others are set anew for each test.
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
    """Runs the tests whose names come through the pipe; ends when it is closed."""
    os.setsid()  # so that ranks can be ended with us
    # What ranks print, in one place.
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


# ---- In the process that asks ----
class Server:
    """Starts a process that runs the suite, and another one when that is stuck."""

    def __init__(self, backend, folder):
        self.backend = backend
        self.output = folder / "output"
        self.process = None

    def run(self, name):
        """How the test of this name ended."""
        if self.process is None:
            self._start()
        size = self.output.stat().st_size if self.output.exists() else 0
        self.pipe.send(name)
        try:
            # The suite itself ends its ranks after TIMEOUT; starting takes time too.
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
        # Not forked: this process may have threads, and has imported other things.
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
        # With it go ranks that a test has left behind. It may have ended by itself.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.join()
        self.process = None


if __name__ == "__main__":
    # BACKEND [NAME...]: runs all tests or those, and prints how each ended.
    case = make_case(sys.argv[1])
    for name in sys.argv[2:] or unittest.TestLoader().getTestCaseNames(case):
        begin = time.monotonic()
        ended = run(case, name)
        seconds = time.monotonic() - begin
        print(ended.how, name, f"{seconds:.2f} s", repr(ended.why), sep="\t")
