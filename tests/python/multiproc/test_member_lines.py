# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Log lines of real ranks about members that are killed, stopped, or late."""

import logging
import time

import pytest
import torch
import torch.distributed as dist

import aikido_torch
from aikido_torch import Options, trace
from aikido_torch.straggler import ActiveBackup, SkipStraggler
from aikido_torch.testing import die, late, run_ranks, stop
from harness.failures import failure_of

SIZE = 4
VICTIM = 1
BACKUP = 3
OTHERS = [rank for rank in range(SIZE) if rank != VICTIM]
COUNT = 100_000  # one shard for each rank
SKIP = SkipStraggler(
    min_contributors=2, floor_ms=20, ceiling_ms=20, max_consecutive_skips=1_000_000
)
# A member counts as silent after one second.
BEATS = Options(heartbeat_interval_ms=100, heartbeat_timeout_ms=1000)


class Lines(logging.Handler):
    """Log lines with their values as programs receive them."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def emit(self, record):
        self.seen.append((record.getMessage(), record.aikido))


def logged(look_s=0.1):
    """Starts to collect lines; returns them and the object that ends the log."""
    lines = Lines()
    logger = logging.getLogger("aikido")
    logger.setLevel(logging.INFO)
    logger.addHandler(lines)
    return lines.seen, trace.log_events(look_s=look_s)


def of_event(seen, event):
    return [values for _, values in seen if values["event"] == event]


def line_of(seen, event):
    return next(line for line, values in seen if values["event"] == event)


def lose_a_rank(rank, size, is_over_at_once):
    """The log is not read until the end, which can be the end of the group."""
    seen, log = logged(look_s=3600)
    dist.barrier()
    if rank == VICTIM:
        die()
    failure = failure_of(dist.barrier)
    late(0.5)  # another rank may report the death before this connection ends
    if is_over_at_once:
        dist.destroy_process_group()
    log.close()
    return seen, failure.rank


@pytest.mark.parametrize("is_over_at_once", [False, True])
def test_a_killed_rank_gives_one_line_on_each_rank_even_if_its_group_is_gone(
    is_over_at_once,
):
    results = run_ranks(SIZE, lose_a_rank, is_over_at_once, may_die={VICTIM})
    for rank in OTHERS:
        seen, culprit = results[rank]
        assert culprit == VICTIM
        deaths = of_event(seen, "death")
        assert deaths == [{"event": "death", "rank": rank, "member": VICTIM}], seen
        line = line_of(seen, "death")
        assert line.startswith('aikido death: rank 1 is lost to group "')
        assert line.endswith(f"; rank={rank} member=1")
        assert of_event(seen, "suspect") == []


def stand_still(rank, size):
    """One rank is stopped while the other ranks wait for it in strict calls."""
    seen, log = logged()
    dist.barrier()
    if rank == VICTIM:
        stop(4.0)
    failure = failure_of(dist.barrier)
    late(1.0)  # another rank may report the silence before this rank notices it
    log.close()
    return seen, failure


def test_a_stopped_rank_is_suspected_once_and_not_dead():
    results = run_ranks(SIZE, stand_still, options=BEATS)
    for rank in OTHERS:
        seen, failure = results[rank]
        assert failure.rank == VICTIM
        values = {"rank": rank, "member": VICTIM, "cause": "silent", "times": 1}
        assert of_event(seen, "suspect") == [{"event": "suspect"} | values]
        assert line_of(seen, "suspect") == (
            "aikido suspect: nothing comes from it: it is stopped, its machine is "
            f"down, or the link is cut; rank={rank} member=1 cause=silent times=1"
        )
        assert of_event(seen, "death") == []
    # The stopped rank heard nothing either, but it was stopped at that time.
    assert of_event(results[VICTIM][0], "suspect") == []


def go_on_without(rank, size, stopped_s):
    """Skippable calls while one rank is stopped, until it takes part again."""
    seen, log = logged()
    dist.barrier()
    if rank == VICTIM:
        stop(stopped_s)
    end = time.monotonic() + 2 * stopped_s
    go_on = torch.ones(1)
    while go_on.item():
        aikido_torch.all_reduce(torch.ones(COUNT), policy=SKIP)
        late(0.01)
        go_on = torch.tensor([float(time.monotonic() < end)])
        # The value of rank 0 decides, unless rank 0 is late.
        aikido_torch.all_reduce(go_on, policy=SKIP)
    late(0.3)
    log.close()
    return seen


def test_others_take_over_from_a_stopped_rank_that_comes_back():
    results = run_ranks(SIZE, go_on_without, 3.0, options=BEATS)
    for rank in OTHERS:
        seen = results[rank]
        moved = [v for v in of_event(seen, "takeover") if v["member"] == VICTIM]
        assert moved, seen
        assert all(v["what"] == "shards" for v in moved)
        owners = {int(r) for r in moved[0]["by"].split(",")}
        assert VICTIM not in owners
        assert owners <= set(OTHERS)
        assert VICTIM in [v["member"] for v in of_event(seen, "member_out")], seen
        assert VICTIM in [v["member"] for v in of_event(seen, "member_back")], seen
        assert of_event(seen, "death") == []
        # Only a few lines, although the rank delayed a hundred calls.
        suspicions = of_event(seen, "suspect")
        assert len([v for v in suspicions if v["member"] == VICTIM]) <= 4
    suspected = [
        v
        for rank in OTHERS
        for v in of_event(results[rank], "suspect")
        if v["member"] == VICTIM
    ]
    assert suspected, results


def reduce_with_a_late_primary(rank, size):
    seen, log = logged()
    policy = ActiveBackup(min_contributors=1, floor_ms=60, ceiling_ms=60)
    for _ in range(6):
        dist.barrier()
        if rank == VICTIM:
            late(0.4)
        aikido_torch.all_reduce(
            torch.ones(COUNT),
            policy=policy,
            data_shard=VICTIM if rank == BACKUP else None,
        )
    dist.barrier()
    log.close()
    return seen


def test_a_backup_that_stands_in_for_many_calls_gives_one_line():
    for rank, seen in enumerate(run_ranks(SIZE, reduce_with_a_late_primary)):
        stood_in = [v for v in of_event(seen, "takeover") if v["what"] == "data"]
        values = {"member": VICTIM, "what": "data", "by": str(BACKUP), "times": 1}
        assert stood_in == [{"event": "takeover", "rank": rank} | values], seen
