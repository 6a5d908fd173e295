# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Members that leave, return, join late and die, while the group continues."""

import inspect
import itertools
import os
import re
import signal
import threading
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import aikido_torch
from aikido_torch import _backend
from aikido_torch.testing import die, late, run_ranks, stop
from harness.failures import failure_of

# Torch before 2.14 has no groups without members, so each rank begins alone there.
IN_PLACE = "enable_reconfigure" in inspect.signature(dist.init_process_group).parameters


class Member:
    """One rank of a test, with a store to exchange handles."""

    def __init__(self, rank, size, folder, timeout=30.0):
        self.rank, self.size = rank, size
        self.store = dist.FileStore(f"{folder}/meeting", size)
        self.store.set_timeout(timedelta(seconds=30))
        options = {
            "store": self.store,
            "rank": rank,
            "world_size": size,
            "timeout": timedelta(seconds=timeout),
        }
        if IN_PLACE:
            options["enable_reconfigure"] = True
        else:
            options |= {"store": dist.HashStore(), "rank": 0, "world_size": 1}
        dist.init_process_group("aikido", **options)

    def handles(self, key, ranks=None):
        """Handles of `ranks` (default: all), which all call this with the same key."""
        self.store.set(f"{key}/{self.rank}", aikido_torch.reconfigure_handle())
        ranks = range(self.size) if ranks is None else ranks
        return [self.store.get(f"{key}/{rank}").decode() for rank in ranks]

    def meet(self, key):
        self.handles(key)

    def become(self, uuid, handles, timeout=20.0):
        aikido_torch.reconfigure(uuid, handles, timeout=timedelta(seconds=timeout))


def total(value=1.0, count=4):
    """The sum over all members; fails if the elements differ."""
    tensor = torch.full((count,), float(value))
    dist.all_reduce(tensor)
    (result,) = tensor.unique().tolist()
    return result


def weighted(rank):
    """The mean of the first ranks of all members, each with its rank as the weight."""
    tensor = torch.tensor([float(rank)], dtype=torch.float64)
    aikido_torch.all_reduce(tensor, op=dist.ReduceOp.AVG, weight=rank)
    return tensor.item()


def place():
    return dist.get_rank(), dist.get_world_size()


def backend():
    return _backend.backend_of(None)


def error():
    """Result of torch's get_error; older versions do not offer it in Python."""
    ask = getattr(backend(), "get_error", None)
    return ask().name if ask else None


def run(size, program, folder, *args, **options):
    # Torch's flight recorder writes a file before an abort, which is not tested here.
    quiet = {"TORCH_FR_BUFFER_SIZE": "0"}
    return run_ranks(
        size, program, str(folder), *args, backend=None, env=quiet, **options
    )


# ---- the first members ----


def begin(rank, size, folder):
    me = Member(rank, size, folder)
    seen = {}
    if IN_PLACE:
        seen["early"] = failure_of(total)
        seen["epoch"] = backend().epoch
    handles = me.handles("first")
    assert all(re.fullmatch(r"aikido1/[^/ ]+/\d+/\w{16}/\w{32}", h) for h in handles)
    me.become(100, handles)
    seen["place"] = place()
    seen["number"] = backend()._get_sequence_number_for_group()
    seen["total"] = total(rank + 1)
    right, left = (rank + 1) % size, (rank - 1) % size
    received = torch.empty(50_000)
    work = dist.isend(torch.full((50_000,), float(rank)), right)
    dist.recv(received, left)
    work.wait()
    seen["received"] = received.unique().tolist() == [left]
    tensor = torch.full((3,), float(rank))
    dist.broadcast(tensor, 1)
    seen["broadcast"] = tensor.tolist()
    seen["same"] = handles[rank] == aikido_torch.reconfigure_handle()
    dist.destroy_process_group()
    return seen


def test_a_group_gets_its_first_members_from_their_handles(tmp_path):
    for rank, seen in enumerate(run(3, begin, tmp_path)):
        if IN_PLACE:
            name, _, text, _ = seen["early"]
            assert name == "ConfigError"
            assert "has no members yet: it was made with enable_reconfigure=True; " in (
                text
            )
            assert seen["epoch"] == 0
        assert seen["place"] == (rank, 3)
        assert seen["number"] == 0
        assert seen["total"] == 6
        assert seen["received"]
        assert seen["broadcast"] == [1.0] * 3
        assert seen["same"]


def take_order(rank, size, folder):
    me = Member(rank, size, folder)
    handles = me.handles("all")
    me.become(1, handles[::-1])
    reverse = place()
    means = [weighted(rank)]
    me.become(2, set(handles))
    means.append(weighted(rank))
    gathered = [None] * size
    dist.all_gather_object(gathered, (place(), rank))
    two = me.handles("two", [1, 2])
    if rank > 0:
        me.become(3, two)
        means.append(weighted(rank))
    return reverse, gathered, means


def test_a_list_gives_the_ranks_and_a_set_gives_some_order_common_to_all(tmp_path):
    results = run(3, take_order, tmp_path)
    for rank, (reverse, gathered, means) in enumerate(results):
        assert reverse == (2 - rank, 3)
        assert means == pytest.approx([5 / 3] * (3 if rank > 0 else 2))
        assert [at for at, _ in gathered] == [(0, 3), (1, 3), (2, 3)]
        assert sorted(member for _, member in gathered) == [0, 1, 2]
        assert gathered == results[0][1]


@pytest.mark.skipif(not IN_PLACE, reason="torch before 2.14 has no such calls")
def test_the_calls_of_torch_do_the_same(tmp_path):
    for rank, seen in enumerate(run(2, use_torchs_calls, tmp_path)):
        assert seen == ("aikido1", True, 3.0, (rank, 2))


def use_torchs_calls(rank, size, folder):
    me = Member(rank, size, folder)
    assert dist._supports_reconfigure()
    handle = dist._get_reconfigure_handle()
    work = dist._reconfigure(1, me.handles("all"), timeout=timedelta(seconds=20))
    return handle.split("/")[0], work.wait(), total(rank + 1), place()


# ---- members that leave and join ----


def change_often(rank, size, folder):
    """Every change without a failure, one after the other."""
    me = Member(rank, size, folder)
    seen = []
    alone = rank * 1000

    def note(what):
        seen.append((what, place(), total(2**rank), backend().epoch))

    if rank < 1:
        me.become(alone, me.handles("early", [0]))
        note("early")
    everybody = me.handles("all")
    me.become(1, everybody)
    note("late join")
    me.become(alone + 2, [everybody[rank]])
    note("alone")
    me.become(3, everybody)
    note("alone to all")
    me.become(3 + 1 + rank // 2, everybody[:2] if rank < 2 else everybody[2:])
    note("apart")
    me.become(6, everybody)
    note("merged")
    if rank != 1:
        me.become(7, [h for r, h in enumerate(everybody) if r != 1])
        note("without the middle")
    me.become(8, everybody)
    note("grown")
    if rank != size - 1:
        me.become(9, everybody[:-1])
        note("without the last")
    me.become(10, everybody)
    note("grown again")
    me.become(11, everybody)
    note("the same")
    return seen


def test_members_leave_and_join_in_every_way(tmp_path):
    results = run(4, change_often, tmp_path)
    everybody = dict.fromkeys(range(4), (lambda rank: (rank, 4), 15.0))
    wanted = {
        "early": {0: (lambda rank: (0, 1), 1.0)},
        "late join": everybody,
        "alone": {r: (lambda rank: (0, 1), 2.0**r) for r in range(4)},
        "alone to all": everybody,
        "apart": {
            r: (lambda rank: (rank % 2, 2), 3.0 * 4 ** (r // 2)) for r in range(4)
        },
        "merged": everybody,
        "without the middle": {
            r: (lambda rank: (max(rank - 1, 0), 3), 13.0) for r in (0, 2, 3)
        },
        "grown": everybody,
        "without the last": {r: (lambda rank: (rank, 3), 7.0) for r in (0, 1, 2)},
        "grown again": everybody,
        "the same": everybody,
    }
    for rank, seen in enumerate(results):
        assert [what for what, *_ in seen] == [w for w in wanted if rank in wanted[w]]
        for what, at, value, _ in seen:
            where, sum_ = wanted[what][rank]
            assert (at, value) == (where(rank), sum_), what
        epochs = [epoch for *_, epoch in seen]
        assert all(a < b for a, b in itertools.pairwise(epochs))
        # Members of one group have the same sequence number.
        for what in ("late join", "alone to all", "merged", "grown", "the same"):
            assert len({e for s in results for w, *_, e in s if w == what}) == 1


def drop_and_rejoin(rank, size, folder):
    me = Member(rank, size, folder)
    handles = me.handles("all")
    me.become(100, handles)
    seen = [total()]
    for turn in range(3):
        dropped = turn % size
        if rank != dropped:
            me.become(110 + 2 * turn, handles[:dropped] + handles[dropped + 1 :])
            seen.append(total())
        else:
            # The other members left the old view of the dropped member.
            name, _, text, seconds = failure_of(total)
            assert name == "AbortedError", text
            assert "was reconfigured (uuid" in text
            assert "call again as a member of the new ones" in text
            assert seconds < 5
            seen.append(0.0)
        handles = handles[:dropped] + handles[dropped + 1 :] + [handles[dropped]]
        me.become(111 + 2 * turn, handles)
        handles = me.handles(f"turn {turn}")
        seen.append(total())
    return seen


def test_a_member_leaves_and_returns_three_times(tmp_path):
    results = run(3, drop_and_rejoin, tmp_path)
    for rank, seen in enumerate(results):
        wanted = [3.0]
        for turn in range(3):
            wanted += [0.0 if rank == turn else 2.0, 3.0]
        assert seen == wanted


# ---- errors ----


def reuse_a_uuid(rank, size, folder):
    me = Member(rank, size, folder)
    everybody = me.handles("all")
    # Two groups. The uuid of the first group is new for the members of the second.
    half = rank // 2
    me.become(5 + half, everybody[2 * half : 2 * half + 2])
    works = [dist.all_reduce(torch.ones(10), async_op=True) for _ in range(3)]
    failure = failure_of(lambda: me.become(5, everybody, timeout=0.5))
    after = [total()]
    for work in works:
        work.wait()
    me.meet("both have failed")
    again = failure_of(lambda: me.become(5, everybody, timeout=0.5))
    after.append(total())
    me.meet("again")
    me.become(7, everybody)
    return failure, again, after, total()


@pytest.mark.alone
def test_a_used_uuid_is_refused_and_all_groups_stay_intact(tmp_path):
    for rank, (first, again, after, last) in enumerate(run(4, reuse_a_uuid, tmp_path)):
        name, _, text, seconds = first
        if rank < 2:
            assert name == "ConfigError"
            assert "uuid 5 on rank" in text
            assert "already used" in text
            assert seconds < 0.3
        else:
            assert name == "TimedOutError", text
            assert "while waiting for rank 0" in text
        assert "already used" in again.text
        assert "the group is as it was" in text
        assert after == [2.0, 2.0]
        assert last == 4.0


def wait_for_nobody(rank, size, folder):
    me = Member(rank, size, folder)
    everybody = me.handles("all")
    if rank < 2:
        me.become(1, everybody[:2])
        failure = failure_of(lambda: me.become(2, everybody, timeout=0.4))
        after = total()
    else:
        failure, after = None, None
    me.meet("over")
    me.become(3, everybody)
    return failure, after, total()


def test_a_member_that_never_comes_is_named(tmp_path):
    for rank, result in enumerate(run(3, wait_for_nobody, tmp_path)):
        failure, after, last = result
        assert last == 3.0
        if failure is None:
            continue
        name, culprit, text, seconds = failure
        assert (name, culprit) == ("TimedOutError", 2), text
        assert "Timed out on rank " in text
        assert "while waiting for rank 2 to connect" in text
        assert text.startswith(f'reconfigure of group "0" with uuid 2 on rank {rank} ')
        assert text.endswith("and the next attempt needs a fresh uuid")
        assert 0.3 < seconds < 2
        assert after == 2.0


def abort_and_recover(rank, size, folder):
    me = Member(rank, size, folder)
    handles = me.handles("all")
    me.become(1, handles)
    # An earlier abort would end the change of members that are not ready yet.
    me.meet("in")
    work = None if rank == 0 else dist.all_reduce(torch.ones(3), async_op=True)
    backend().abort()
    backend().abort()
    errors = [error()]
    failures = [failure_of(total)]
    if work is not None:
        failures.append(failure_of(work.wait))
    me.meet("aborted")
    me.become(2, handles)
    errors.append(error())
    return errors, failures, total()


def test_an_aborted_group_recovers(tmp_path):
    for errors, failures, last in run(3, abort_and_recover, tmp_path):
        assert errors == ["SUCCESS" if IN_PLACE else None] * 2
        for name, _, text, seconds in failures:
            assert name == "AbortedError", text
            assert re.search(r"was aborted by rank \d", text)
            assert seconds < 5
        assert last == 3.0


def time_out_and_recover(rank, size, folder):
    me = Member(rank, size, folder)
    handles = me.handles("all")
    me.become(1, handles)
    first = total()
    set_timeout(0.05)
    failure = failure_of(total) if rank == 1 else None
    between = error()
    me.meet("seen")
    set_timeout(30.0)
    me.become(2, handles)
    return first, failure, (between, error()), total()


def set_timeout(seconds):
    backend().set_timeout(timedelta(seconds=seconds))


def test_a_group_that_timed_out_recovers(tmp_path):
    for rank, result in enumerate(run(3, time_out_and_recover, tmp_path)):
        first, failure, errors, last = result
        assert (first, last) == (3.0, 3.0)
        if IN_PLACE:
            assert errors == ("TIMEOUT" if rank == 1 else "SUCCESS", "SUCCESS")
        if rank == 1:
            assert failure.name == "TimedOutError"
            assert re.search("[Tt]imed out", failure.text)
            assert 0.04 < failure.seconds < 2


def change_under_way(rank, size, folder):
    me = Member(rank, size, folder)
    handles = me.handles("all")
    me.become(1, handles)
    works = []
    if rank != 2:
        works += [dist.all_reduce(torch.ones(10), async_op=True)]
        works += [dist.irecv(torch.empty(3), 2)]
    me.meet("called")
    if rank == 2:
        me.meet("over")  # it leaves after the others have continued
        return None
    me.become(2, handles[:2])
    result = [failure_of(work.wait) for work in works], total()
    me.meet("over")
    return result


def test_calls_in_progress_fail_with_the_reason(tmp_path):
    *results, _ = run(3, change_under_way, tmp_path)
    for failures, last in results:
        assert last == 2.0
        for name, _, text, seconds in failures:
            assert name == "AbortedError", text
            assert "was reconfigured (uuid 2, now 2 members)" in text
            assert seconds < 5


def abort_meanwhile(rank, size, folder):
    me = Member(rank, size, folder)
    handles = me.handles("all")
    if rank == 0:
        threading.Timer(0.2, backend().abort).start()
        failure = failure_of(lambda: me.become(1, handles))
    else:
        late(0.5)
        failure = failure_of(lambda: me.become(1, handles, timeout=0.3))
    me.meet("over")
    me.become(2, handles)
    return failure, total()


def test_an_abort_ends_a_waiting_change(tmp_path):
    (first, last), (other, other_last) = run(2, abort_meanwhile, tmp_path)
    assert first[0] == "AbortedError", first[2]
    assert 0.1 < first[3] < 3
    assert other[0] == "TimedOutError", other[2]
    assert last == other_last == 2.0


# ---- deaths ----


def lose_one(rank, size, folder, victim):
    me = Member(rank, size, folder)
    handles = me.handles("all")
    me.become(1, handles)
    total()
    me.store.set(f"pid/{rank}", str(os.getpid()))
    me.meet("ready")
    if rank == victim:
        late(60)
    survivors = [r for r in range(size) if r != victim]
    killed_at = None
    if rank == survivors[0]:
        killed_at = time.perf_counter()
        os.kill(int(me.store.get(f"pid/{victim}")), signal.SIGKILL)
    start = time.perf_counter()
    failure = failure_of(total)
    me.become(2, [handles[r] for r in survivors])
    value = total(2**rank)
    end = time.perf_counter()
    return {
        "failure": failure,
        "s": end - (killed_at or start),
        "total": value,
        "place": place(),
    }


@pytest.mark.alone
@pytest.mark.parametrize("victim", [0, 1, 3])
def test_survivors_of_a_kill_continue_within_a_second(tmp_path, victim):
    results = run(4, lose_one, tmp_path, victim, may_die={victim})
    assert results.pop(victim) is None
    for rank, seen in enumerate(results):
        assert seen["failure"].name == "PeerLostError", seen["failure"].text
        assert seen["failure"].rank == victim
        assert seen["total"] == 15 - 2**victim
        assert seen["place"] == (rank, 3)
        assert seen["s"] < 1


def replace_a_dead_member(rank, size, folder):
    """Rank 2 takes the place of rank 1, and comes only after rank 1 has died."""
    if rank == 2:
        meeting = dist.FileStore(f"{folder}/meeting", size)
        meeting.get("dead")
    me = Member(rank, size, folder)
    if rank < 2:
        me.become(1, me.handles("first", [0, 1]))
        total()
        if rank == 1:
            die()
        failure = failure_of(total)
        assert failure.name == "PeerLostError"
        me.store.set("dead", "1")
    me.become(2, me.handles("second", [0, 2]))
    return place(), total(2**rank)


def test_a_new_process_takes_the_place_of_a_dead_one(tmp_path):
    first, _, new = run(3, replace_a_dead_member, tmp_path, may_die={1})
    assert first == ((0, 2), 5.0)
    assert new == ((1, 2), 5.0)


def die_while_joining(rank, size, folder):
    me = Member(rank, size, folder)
    handles = me.handles("all")
    if rank != 2:
        me.become(1, handles[:2])
    else:
        # It dies while it joins: connected to some members, but not to all.
        threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
    if rank == 1:
        late(0.6)
    failure = failure_of(lambda: me.become(2, handles, timeout=3))
    return failure, total()


def test_a_member_that_dies_while_joining_does_not_change_the_others(tmp_path):
    results = run(3, die_while_joining, tmp_path, may_die={2})
    for failure, value in results[:2]:
        name, _, text, seconds = failure
        assert name in ("PeerLostError", "TimedOutError"), text
        assert seconds < 5
        assert value == 2.0


def go_on_without_a_stopped_one(rank, size, folder):
    me = Member(rank, size, folder)
    handles = me.handles("all")
    me.become(1, handles)
    total()
    me.meet("stop")
    if rank == 2:
        stop(1.0)
        failure = failure_of(lambda: total(count=4_000_000))
        seconds = 0.0
    else:
        late(0.2)
        # Large enough to be stuck on the way to the stopped member.
        stuck = dist.all_reduce(torch.ones(4_000_000), async_op=True)
        start = time.perf_counter()
        me.become(2, handles[:2])
        assert total() == 2
        seconds = time.perf_counter() - start
        failure = failure_of(stuck.wait)
    me.become(3, handles)
    return failure, seconds, total()


@pytest.mark.alone
def test_a_stopped_member_is_left_behind_and_comes_back(tmp_path):
    results = run(3, go_on_without_a_stopped_one, tmp_path)
    for rank, (failure, seconds, last) in enumerate(results):
        # Frames stuck on the way to the stopped member can hide the reason from it.
        kinds = ("AbortedError", "PeerLostError")[: 1 + (rank == 2)]
        assert failure.name in kinds, failure.text
        assert seconds < 0.7
        assert last == 3.0
