# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Small runs of the benchmark's ranks, on hosts with slow links; no speed is judged."""

import dataclasses

import pytest

from benchmarks.lab import Lab
from benchmarks.ordering_cases import urgent_runs, urgent_stream
from benchmarks.ordering_cases.urgent_plan import Turn
from benchmarks.straggler_cases.case import Context

pytestmark = pytest.mark.alone

MBIT = 50.0
SMALL = 64_000


@pytest.fixture(scope="module", autouse=True)
def _possible():
    if reason := Lab.unavailable():
        pytest.skip(reason)


def context():
    return Context(
        is_full=False,
        seed=0,
        on_progress=lambda share: None,
        on_record=lambda record: None,
    )


def test_an_urgent_call_ends_long_before_the_bulk_queued_ahead_of_it():
    behind = Turn(
        name="behind", num_bulk=3, bulk_bytes=10 * SMALL, urgent_bytes=SMALL, priority=5
    )
    fifo = dataclasses.replace(behind, name="fifo", priority=0)
    gloo = dataclasses.replace(fifo, name="gloo", backend="gloo")
    with urgent_runs.lab_of(3, mbit=MBIT, queue_ms=20) as lab:
        found = urgent_runs.run(lab, [behind, fifo, gloo, behind], context())
        assert {link.up_mbit for link in lab.links} == {MBIT}
    # 2.5 MB at 50 Mbit/s take 400 ms. The ranks check the sums.
    times = [record.urgent_ms for record in found]
    assert times[3] < 0.25 * min(times[1:3])
    assert max(record.all_ms for record in found) < 1500


def test_an_urgent_message_overtakes_bulk_in_order_and_is_counted():
    # More bulk than the link takes at once, so that bulk is paused during urgent
    # messages.
    plan = urgent_stream.Plan(
        num_bulk=16,
        bulk_bytes=1_000_000,
        num_urgent=20,
        urgent_bytes=100_000,
        every_s=0.02,
    )
    with urgent_runs.lab_of(2, mbit=MBIT, queue_ms=50) as lab:
        found = urgent_stream.run(lab, plan, context())
    assert len(found.latencies_ms) == plan.num_urgent
    # A message of 1 MB takes 160 ms here, and four are queued ahead.
    assert sorted(found.latencies_ms)[plan.num_urgent // 2] < 100
    counters = found.seen["counters"]
    assert counters["inversions"] == 0
    assert counters["preemptions"] >= 15
    assert counters["credit_bytes"] < plan.urgent_bytes
    assert counters["uplink_bytes_per_s"] > 2e6
    assert counters["queued_us"] > 0
    assert counters["paused_us"] > 0
    assert counters["wire_us"] > 0


@pytest.mark.parametrize("is_told", [True, False])
def test_a_group_with_a_priority_limits_its_bytes_in_flight(is_told):
    plan = urgent_stream.Plan(
        num_bulk=4, bulk_bytes=1_000_000, num_urgent=0, every_s=0.02, is_told=is_told
    )
    with urgent_runs.lab_of(2, mbit=MBIT, queue_ms=50) as lab:
        found = urgent_stream.run(lab, plan, context())
    assert (found.seen["counters"]["credit_bytes"] > 0) == is_told
