# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""The end of a group: abort and shutdown in every order, hooks, and reported errors."""

import itertools
import threading
import time

import pytest
import torch
import torch.distributed as dist

import aikido_torch
from aikido_torch import _backend
from aikido_torch.testing import die, late, run_ranks
from harness.failures import failure_of

# Torch's flight recorder is an abort hook that writes a file, which is not tested here.
QUIET = {"TORCH_FR_BUFFER_SIZE": "0"}


def backend(group=None):
    return _backend.backend_of(group)


def end_in_every_order(rank, size):
    seen = []
    for order in itertools.product(("abort", "shutdown"), repeat=3):
        group = dist.new_group()
        dist.all_reduce(torch.ones(2), group=group)
        works = [dist.irecv(torch.empty(2), (rank + 1) % size, group=group)]
        start = time.perf_counter()
        for end in order:
            getattr(backend(group), end)()
        failures = [failure_of(work.wait) for work in works]
        failures.append(failure_of(lambda g=group: dist.barrier(group=g)))
        seen.append((order, failures, time.perf_counter() - start))
        dist.destroy_process_group(group)
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    return seen, tensor.item()


def test_abort_and_shutdown_can_be_called_in_every_order_and_again():
    for seen, last in run_ranks(2, end_in_every_order, env=QUIET):
        assert last == 2
        assert len(seen) == 8
        for order, failures, seconds in seen:
            assert seconds < 3, order
            for name, _, text, _ in failures:
                assert name in ("AbortedError", "PeerLostError"), (order, text)


def report_errors(rank, size):
    seen = [backend().get_error().name]
    if rank == 1:
        dist.barrier()
        die()
    dist.barrier()
    failure_of(dist.barrier)
    seen.append(backend().get_error().name)
    backend().abort()
    seen.append(backend().get_error().name)
    return seen


@pytest.mark.skipif(
    not hasattr(torch._C._distributed_c10d.Backend, "get_error"),
    reason="torch before 2.14 does not let Python ask",
)
def test_get_error_reports_other_ranks_and_never_the_own_abort():
    results = run_ranks(3, report_errors, may_die={1}, env=QUIET)
    for rank in (0, 2):
        assert results[rank] == ["SUCCESS", "REMOTE_ERROR", "SUCCESS"]


def hook_aborts(rank, size):
    seen = []
    group = backend()
    if rank == 1:
        late(0.3)
        return seen

    def first():
        # The group still works, and a hook can inspect it.
        seen.append(("first", work.is_completed(), group.get_error().name))

    def second():
        seen.append(("second",))
        raise ValueError("a hook that fails")

    group.register_abort_hook(1, first)
    group.register_abort_hook(2, second)
    group.register_abort_hook(3, lambda: seen.append(("third",)))
    group.unregister_abort_hook(3)
    group.unregister_abort_hook(4)
    work = dist.barrier(async_op=True)
    group.abort()
    failure = failure_of(work.wait)
    group.shutdown()
    group.abort()  # calls no hook again
    return [*seen, failure.name]


@pytest.mark.skipif(
    not hasattr(torch._C._distributed_c10d.Backend, "register_abort_hook"),
    reason="torch before 2.14 has no hooks",
)
def test_hooks_run_before_anything_is_aborted():
    seen, _ = run_ranks(2, hook_aborts, env=QUIET)
    assert seen == [("first", False, "SUCCESS"), ("second",), "AbortedError"]


def shut_down_while_joining(rank, size, folder):
    own = aikido_torch.reconfigure_handle()
    meeting = dist.FileStore(f"{folder}/meeting", size)
    meeting.set(str(rank), own)
    handles = [meeting.get(str(r)).decode() for r in range(size)]
    if rank == 1:
        dist.barrier()
        return None
    threading.Timer(0.2, backend().shutdown).start()
    start = time.perf_counter()
    failure = failure_of(lambda: aikido_torch.reconfigure(1, handles))
    again = failure_of(lambda: aikido_torch.reconfigure(2, [own]))
    return failure, again, time.perf_counter() - start


def test_a_shutdown_ends_a_waiting_reconfiguration(tmp_path):
    (failure, again, seconds), *_ = run_ranks(
        2, shut_down_while_joining, str(tmp_path), may_die={1}
    )
    assert failure.name == "AbortedError"
    assert "was shut down by rank 0 while its members were changing" in failure.text
    assert again.name == "ConfigError"
    assert "the group is shut down" in again.text
    assert seconds < 5
