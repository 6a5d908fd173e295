# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest

from benchmarks.straggler_cases import records
from benchmarks.straggler_cases.case import CaseError
from benchmarks.straggler_cases.faults import num_different
from benchmarks.straggler_cases.plan import Action, Block
from benchmarks.straggler_cases.runs import Record


def seen(begins, ends, *, skipped=None, reasons=None, sums=(1,), error=None):
    return {
        "begins": begins,
        "ends": ends,
        "skipped": skipped or {},
        "reasons": reasons or {},
        "sums": list(sums),
        "error": error,
    }


def record(*ranks, **options):
    """A record of a block with as many operations as the first rank has seen."""
    settings = {"name": "a", "arm": "skip", "ops": len(ranks[0]["begins"])}
    return Record(Block(**settings | options), by_rank=dict(enumerate(ranks)))


WELL = seen([0.0, 1.0, 2.0], [0.5, 1.7, 2.2])
LATE = seen([0.1, 1.2, 2.1], [0.4, 9.0, 9.5])


def test_an_operation_lasts_from_the_last_healthy_start_to_the_last_healthy_end():
    assert records.op_times(record(WELL, WELL, WELL, LATE)) == pytest.approx(
        [400, 7800, 7400]
    )
    healthy = record(WELL, WELL, WELL, LATE, healthy=(0, 1, 2), warm_up=1)
    assert records.op_times(healthy) == pytest.approx([700, 200])
    assert records.op_times(healthy, begin=0, end=1) == pytest.approx([500])
    assert records.op_times(healthy, begin=0, end=1, ranks=(3,)) == pytest.approx([300])


def test_an_operation_that_a_healthy_rank_did_not_end_has_no_time():
    broken = seen([0.0, 1.0, 2.0], [0.5], error="PeerLostError: x")
    assert records.op_times(record(WELL, broken, WELL, WELL)) == pytest.approx([500])


def test_a_step_is_done_when_most_ranks_have_it():
    ends = ([1.0, 2.0], [1.1, 2.6], [1.2, 2.4], [5.0, 5.1])
    block = record(*(seen(e, e) for e in ends))
    assert records.step_times(block) == pytest.approx([1400])


def test_the_worst_step_is_that_near_the_moment():
    ends = [1.0, 2.2, 2.8, 4.8]
    block = record(*(seen(ends, ends) for _ in range(4)))
    assert records.worst_steps(block, [1.5, 2.0, 9.0], 0.5) == pytest.approx(
        [1200, 1200]
    )
    assert records.worst_steps(block, [1.5, 2.5], 1.5) == pytest.approx([2000, 2000])


def test_skips_are_counted_once_each_and_by_rank_after_the_warm_up():
    skips = seen([0] * 3, [0] * 3, skipped={"0": [3], "2": [2, 3]}, reasons={"x": 3})
    other = seen([0] * 3, [0] * 3, skipped={"1": [0]})
    block = record(skips, other, other, other, warm_up=1)
    assert records.num_skipped(block) == 3
    assert records.num_skipped(block, begin=2) == 1
    assert records.skips_by_rank([block, block]) == {2: 2, 3: 2}
    assert records.evidence([block]) == "skips 2:1 3:1; x 3"


def test_bits_that_differ_are_an_error_but_not_those_of_a_rank_that_failed():
    same, other = seen([0], [0], sums=(5,)), seen([0], [0], sums=(6,))
    failed = seen([0], [], sums=(), error="PeerLostError: x")
    records.check_bits([record(same, same, same, same)])
    records.check_bits([record(same, same, failed, same)])
    with pytest.raises(CaseError, match="ranks 0 and 3 have different bits in 'a'"):
        records.check_bits([record(same, same, same, other)])


def test_checks_that_differ_or_are_missing_are_counted():
    assert num_different([[1, 2, 3]] * 4, 3) == 0
    assert num_different([[1, 2, 3]] * 3 + [[1, 2, 4]], 3) == 1
    assert num_different([[1, 2, 3]] * 3 + [[1, 2]], 3) == 1
    assert num_different([[1, 2]] * 4, 3) == 1


def test_excess_is_what_was_lost_and_not_what_was_won():
    assert records.excess([100, 250, 130], 120) == 140


def test_a_position_counts_the_calls_that_had_ended():
    block = record(WELL, WELL, WELL, LATE)
    assert records.position(block, 0, 1.8) == 2
    assert records.position(block, 3, 1.8) == 1


def test_actions_are_found_by_what_they_did():
    block = record(WELL, WELL, WELL, LATE)
    block.done = [(4.0, Action(do="cut")), (5.0, Action(do="heal"))]
    assert records.moment_of(block, "heal") == 5.0
    with pytest.raises(CaseError, match="'kill' was not done in 'a'"):
        records.moment_of(block, "kill")


def test_blocks_are_found_by_name_and_their_operations_put_together():
    blocks = [record(WELL, WELL, WELL, WELL), record(LATE, LATE, LATE, LATE, name="b")]
    assert records.samples([*blocks, blocks[0]], "a").values == pytest.approx(
        [500, 700, 200] * 2
    )
    with pytest.raises(CaseError, match="no block is named 'c'"):
        records.named(blocks, "c")
