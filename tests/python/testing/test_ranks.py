# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import os
import socket
import time

import pytest
import torch
import torch.distributed as dist

from aikido_torch import _C, Options, _backend
from aikido_torch.testing import _ranks, die, late, run_ranks, stop
from aikido_torch.testing._ranks import RanksFailedError


def describe(rank, size, *args):
    options = getattr(_backend.backend_of(dist.group.WORLD), "options", None)
    return {
        "place": (rank, size, dist.get_rank(), dist.get_world_size()),
        "args": args,
        "variable": os.environ.get("SAMPLE"),
        "threads": torch.get_num_threads(),
        # None: an older torch, where a backend does not show its options.
        "timeout": options and options._timeout.total_seconds(),
        "tensor": torch.full((3,), float(rank)),
    }


@pytest.mark.parametrize("rendezvous", ["file", "tcp"])
def test_ranks_return_their_values_in_order(rendezvous):
    values = run_ranks(
        2,
        describe,
        "a",
        {"b": 1},
        rendezvous=rendezvous,
        env={"SAMPLE": "text"},
        group_timeout=17,
        options=Options(transport_eager_bytes=1000),
    )
    for rank, value in enumerate(values):
        assert value["place"] == (rank, 2, rank, 2)
        assert value["args"] == ("a", {"b": 1})
        assert value["variable"] == "text"
        assert value["threads"] == 1
        shows_options = hasattr(_C.AikidoBackend, "options")
        assert value["timeout"] == (17 if shows_options else None)
        assert value["tensor"].tolist() == [rank] * 3


def have_no_group(rank, size):
    return dist.is_initialized()


def test_a_program_may_make_its_own_group():
    assert run_ranks(2, have_no_group, backend=None) == [False, False]


def fail_on_one(rank, size):
    if rank == 1:
        raise ZeroDivisionError("on purpose")
    late(0.1)
    return rank


def test_the_traceback_of_a_rank_is_told():
    with pytest.raises(RanksFailedError) as caught:
        run_ranks(3, fail_on_one, backend=None)
    assert list(caught.value.failures) == [1]
    assert "ranks 1 failed" in str(caught.value)
    assert "ZeroDivisionError: on purpose" in str(caught.value)
    assert "in fail_on_one" in str(caught.value)
    assert run_ranks(3, fail_on_one, backend=None, may_die={1}) == [0, None, 2]


def die_on_one(rank, size):
    if rank == 0:
        die()
    return rank


def test_a_rank_that_dies_is_told_by_its_exit_code():
    with pytest.raises(RanksFailedError) as caught:
        run_ranks(2, die_on_one, backend=None)
    assert caught.value.failures == {0: "ended without a word, exit code -9"}
    assert run_ranks(2, die_on_one, backend=None, may_die=[0]) == [None, 1]


def wait_in_vain(rank, size, folder):
    with open(f"{folder}/{rank}", "w") as file:
        file.write(str(os.getpid()))
    if rank == 1:
        stop(100)
    late(100)


def test_what_runs_too_long_is_killed_and_says_where_it_was(tmp_path):
    start = time.monotonic()
    with pytest.raises(RanksFailedError) as caught:
        run_ranks(2, wait_in_vain, str(tmp_path), backend=None, deadline=3)
    assert time.monotonic() - start < 10
    failures = caught.value.failures
    assert failures[0].startswith("still ran after the deadline of 3 s; it was in\n")
    assert "in wait_in_vain" in failures[0]
    assert failures[1].startswith("still ran")
    for rank in range(2):
        with pytest.raises(ProcessLookupError):
            os.kill(int((tmp_path / str(rank)).read_text()), 0)


def fail_and_hang(rank, size):
    if rank == 0:
        raise ZeroDivisionError
    late(100)


def test_after_a_failure_the_others_have_little_time_left():
    start = time.monotonic()
    with pytest.raises(RanksFailedError) as caught:
        run_ranks(2, fail_and_hang, backend=None, deadline=50)
    assert time.monotonic() - start < 15
    assert "ZeroDivisionError" in caught.value.failures[0]
    assert "3 s after rank 0 had failed" in caught.value.failures[1]


def test_a_port_of_which_another_address_is_in_use_is_not_free(monkeypatch):
    with socket.socket() as other:
        other.bind(("127.0.0.5", 0))
        other.listen()
        port = other.getsockname()[1]
        monkeypatch.setattr(_ranks, "_LISTEN_PORTS", range(port, port + 1))
        with pytest.raises(OSError, match="is free"):
            _ranks._free_port()
