# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Agreement on the members that are left, with roles, deaths and stops."""

import inspect
import os
import signal
import time
from datetime import timedelta
from functools import partial

import pytest
import torch
import torch.distributed as dist

import aikido_torch
from aikido_torch.testing import late, run_ranks, stop
from harness.failures import failure_of

SIZE = 8
RELIABLE = 2
# Torch before 2.14 has no groups without members, so each rank begins alone there.
IN_PLACE = "enable_reconfigure" in inspect.signature(dist.init_process_group).parameters


def begin(rank, size, folder, num_reliable, by_handles=False):
    """A group whose first ranks are reliable, and the store of the test."""
    role = "reliable" if rank < num_reliable else "transient"
    store = dist.FileStore(f"{folder}/meeting", size)
    store.set_timeout(timedelta(seconds=30))
    place = {"store": store, "rank": rank, "world_size": size}
    if by_handles and IN_PLACE:
        place["enable_reconfigure"] = True
    elif by_handles:
        place = {"store": dist.HashStore(), "rank": 0, "world_size": 1}
    dist.init_process_group(
        "aikido",
        timeout=timedelta(seconds=30),
        pg_options=aikido_torch.Options(role=role),
        **place,
    )
    if by_handles:
        reconfigure(store, rank, 100, range(size))
    store.set(f"pid/{rank}", str(os.getpid()))
    total()
    return store


def reconfigure(store, rank, uuid, ranks):
    """Makes a group of `ranks`, which are named as in the first group."""
    store.set(f"{uuid}/{rank}", aikido_torch.reconfigure_handle())
    handles = [store.get(f"{uuid}/{r}").decode() for r in ranks]
    aikido_torch.reconfigure(uuid, handles, timeout=timedelta(seconds=20))


def total():
    tensor = torch.ones(4)
    dist.all_reduce(tensor)
    return tensor[0].item()


def kill(store, ranks):
    for rank in ranks:
        os.kill(int(store.get(f"pid/{rank}")), signal.SIGKILL)


def run(size, program, folder, *args, **options):
    quiet = {"TORCH_FR_BUFFER_SIZE": "0"}
    return run_ranks(
        size, program, str(folder), *args, backend=None, env=quiet, **options
    )


def agree_in_time(error):
    begin_s = time.monotonic()
    agreed = aikido_torch.agree_members(lost=[error.rank])
    return agreed, 1000 * (time.monotonic() - begin_s)


def lose_the_transient(rank, size, folder, by_handles):
    store = begin(rank, size, folder, RELIABLE, by_handles)
    if rank >= RELIABLE:
        late(60)
    if rank == 0:
        kill(store, range(RELIABLE, size))
    agreed, took_ms = agree_in_time(failure_of(total))
    again = aikido_torch.agree_members()
    survivors = None
    if by_handles:
        reconfigure(store, rank, 200, agreed.ranks)
        # The next group has the same roles.
        survivors = total(), aikido_torch.agree_members()
        total()
    return agreed, again, took_ms, survivors


@pytest.mark.parametrize("by_handles", [False, True])
def test_two_reliable_survivors_of_eight_agree_within_200_ms(tmp_path, by_handles):
    results = run(
        SIZE,
        lose_the_transient,
        tmp_path,
        by_handles,
        may_die=range(RELIABLE, SIZE),
    )
    for agreed, again, took_ms, survivors in results[:RELIABLE]:
        assert agreed == (1, [0, 1])
        # An agreement is returned once.
        assert again == (2, [0, 1])
        assert took_ms < 200
        if by_handles:
            assert survivors == (2.0, (1, [0, 1]))


def lose_the_reliable(rank, size, folder):
    store = begin(rank, size, folder, 1)
    if rank == 0:
        late(60)
    if rank == 1:
        kill(store, [0])
    failure_of(total)
    return failure_of(aikido_torch.agree_members)


def test_the_death_of_the_only_reliable_rank_ends_the_group_with_a_sentence(tmp_path):
    results = run(4, lose_the_reliable, tmp_path, may_die=[0])
    for error in results[1:]:
        assert error.name == "PeerLostError"
        assert error.rank == 0
        assert (
            "the only reliable member is lost, so the members cannot agree; start "
            "again from a checkpoint" in error.text
        )


def lose_half(rank, size, folder):
    store = begin(rank, size, folder, 0)
    if rank >= 2:
        late(60)
    if rank == 0:
        kill(store, [2, 3])
    failure_of(total)
    return failure_of(aikido_torch.agree_members)


def test_without_roles_half_of_the_ranks_cannot_agree(tmp_path):
    for error in run(4, lose_half, tmp_path, may_die=[2, 3])[:2]:
        assert (
            "only 2 of the 4 members that took part are left, not more than half"
            in error.text
        )


def stop_one(rank, size, folder):
    store = begin(rank, size, folder, 2)
    if rank == 3:
        store.set("stopped", "1")
        stop(3.0)
        return failure_of(aikido_torch.agree_members)
    store.get("stopped")
    late(0.2)
    agreed = aikido_torch.agree_members(lost=[3])
    dist.destroy_process_group()
    return agreed


def test_a_stopped_rank_is_excluded_and_learns_of_it(tmp_path):
    *others, stopped = run(4, stop_one, tmp_path)
    assert others == [(1, [0, 1, 2])] * 3
    assert stopped.name in ("PeerLostError", "AbortedError")


def time_out(rank, size, folder):
    store = begin(rank, size, folder, 2)
    if rank == 0:
        store.set("stopped", "1")
        stop(2.0)
        return None
    store.get("stopped")
    late(0.1)
    return failure_of(
        lambda: aikido_torch.agree_members(timeout=timedelta(milliseconds=300))
    )


def test_a_vote_without_enough_answers_ends_at_its_deadline(tmp_path):
    _, error = run(2, time_out, tmp_path)
    assert error.name == "TimedOutError"
    assert (
        "more than half of the voters (rank 0, rank 1) have not answered" in error.text
    )


def refuse(rank, size, folder):
    begin(rank, size, folder, 1)
    texts = [
        failure_of(partial(aikido_torch.agree_members, **arguments)).text
        for arguments in (
            {"lost": ["1"]},
            {"lost": [size]},
            {"lost": [rank]},
            {"timeout": 3},
        )
    ]
    other = aikido_torch.Options(role="transient" if rank == 0 else "reliable")
    changed = failure_of(lambda: dist.new_group(pg_options=other, backend="aikido"))
    return [*texts, changed.text]


def test_wrong_arguments_and_a_changed_role_are_refused(tmp_path):
    for texts in run(2, refuse, tmp_path):
        for text, part in zip(
            texts,
            (
                "'1' in lost is a str",
                "rank 2 is in lost",
                "pass other ranks of the group, 0 to 1",
                "timeout is 3; pass a datetime.timedelta",
                "all groups of a process share it, and the first one was made with",
            ),
            strict=True,
        ):
            assert part in text
