# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""The random faults and their checks, without processes."""

import multiprocessing
import os
import pickle
import socket

import pytest

from harness import fault_cases
from harness.fault_cases import FAULTS, HEARD_S, Fault, Report, Verdict, case
from harness.programs import KINDS


def number_of(fault):
    return next(n for n in range(100) if case(n).fault == fault)


def test_a_number_always_gives_the_same_case():
    for number in range(40):
        assert case(number) == case(number)
        assert case(number) == pickle.loads(pickle.dumps(case(number)))


def test_each_operation_meets_each_fault():
    met = {(type(c.operation).__name__, c.fault) for c in map(case, range(200))}
    assert len(met) == len(KINDS) * len(set(FAULTS))
    assert {case(n).size for n in range(200)} == {3, 4}
    # Every operation but messages also occurs without barriers.
    alone = {
        type(c.operation).__name__ for c in map(case, range(200)) if not c.has_barrier
    }
    assert len(alone) == len(KINDS) - 2


def judged(what, died_after=0.0, **changes):
    """The verdict about a case in which one survivor reports something else."""
    good = {"num_done": 3, "ended_at": 100.1, "cpu_waits": {7: 2.0}}
    if what.is_fatal:
        good |= {"error": "PeerLostError", "culprit": what.victim, "text": "it died"}
        good |= {"recovered_at": 100.2}
    reports = [Report(**good) for _ in range(what.size)]
    if what.fault == "kill":
        reports[what.victim] = None
    odd = (what.victim + 1) % what.size
    reports[odd] = Report(**(good | changes))
    verdict = Verdict(what)
    fault = Fault(100.0, [{7: 2.0}] * what.size)
    fault_cases._judge(what, reports, fault, {7: 2.0 + died_after}, verdict)
    return verdict


@pytest.mark.parametrize("fault", sorted(set(FAULTS)))
def test_a_case_as_required_has_no_complaint(fault):
    verdict = judged(case(number_of(fault)))
    assert verdict.wrong == []
    assert len(verdict.heard_s) == (verdict.case.size - 1 if fault == "kill" else 0)


@pytest.mark.parametrize(
    ("fault", "changes", "text"),
    [
        ("kill", {"wrong": ["result 0 is 1, not 2"]}, "result 0 is 1, not 2"),
        ("late", {"wrong": ["result 0 is 1, not 2"]}, "result 0 is 1, not 2"),
        ("kill", {"error": ""}, "never had an error"),
        ("stop", {"error": ""}, "never had an error"),
        ("kill", {"culprit": None}, "blames None, not"),
        ("reset", {"culprit": 9}, "blames 9, not"),
        ("stop", {"culprit": 9, "error": "TimedOutError"}, "blames 9, not"),
        ("kill", {"ended_at": 100.01 + HEARD_S}, "heard of the kill after 0.310 s"),
        (
            "kill",
            {"ended_at": 100.11 + HEARD_S, "cpu_waits": {7: 2.05, 8: 0.04}},
            "after 0.410 s, of which 0.090 s without a CPU",
        ),
        ("shut", {"recovered_at": None, "recovery": "no"}, "has no new group: no"),
        ("kill", {"recovered_at": 103.0}, "a new group took 2.900 s"),
        ("late", {"error": "TimedOutError", "text": "why"}, "TimedOutError: why"),
        ("pause", {"error": "PeerLostError", "text": "why"}, "PeerLostError: why"),
    ],
)
def test_a_rank_that_breaks_a_requirement_is_named(fault, changes, text):
    what = case(number_of(fault))
    verdict = judged(what, **changes)
    (wrong,) = verdict.wrong
    assert text in wrong


def test_time_waiting_for_a_cpu_does_not_count_against_a_rank():
    what = case(number_of("kill"))
    late = {"ended_at": 100.11 + HEARD_S}
    (wrong,) = judged(what, **late).wrong
    assert "of which 0.000 s without a CPU" in wrong
    # The first is a wait of the survivor's threads, the second of the dying victim.
    assert judged(what, **late, cpu_waits={7: 2.06, 8: 0.06}).wrong == []
    verdict = judged(what, died_after=0.12, **late)
    assert verdict.wrong == []
    assert verdict.waited_s == pytest.approx([0.12] * (what.size - 1))


def test_a_verdict_says_how_to_repeat_it():
    verdict = Verdict(case(17), wrong=["rank 1: no"])
    assert "rank 1: no" in str(verdict)
    assert "python -m harness.fault_cases 17" in str(verdict)


def cut_one(how):
    """The same process can be the victim many times."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        store_port = server.getsockname()[1]
        kept = socket.create_connection(server.getsockname())
        with socket.create_server(("127.0.0.1", 0)) as other, kept:
            cut = socket.create_connection(other.getsockname())
            far_end, _ = other.accept()
            with cut, far_end:
                before = sorted(os.listdir("/proc/self/fd"))
                # Both ends of the connection are in this process.
                assert fault_cases.cut_all(store_port, how) == 2
                assert sorted(os.listdir("/proc/self/fd")) == before
                kept.send(b"it lives")
                with pytest.raises(OSError, match=r"reset|[Pp]ipe"):
                    cut.send(b"it does not")


@pytest.mark.parametrize("how", ["reset", "shut"])
def test_cutting_connections_leaks_no_descriptor(how):
    # Other tests may have left connections in this process.
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        pool.apply(cut_one, (how,))
