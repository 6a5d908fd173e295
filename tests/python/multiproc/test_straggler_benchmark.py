# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Small runs of the benchmark's ranks, on hosts with slow links; no speed is judged."""

import pytest

from benchmarks.lab import Lab
from benchmarks.straggler_cases import records, runs
from benchmarks.straggler_cases.case import CaseError
from benchmarks.straggler_cases.plan import BAD, MBIT, Action, Block

SMALL = 64 << 10


@pytest.fixture(scope="module", autouse=True)
def _possible():
    if reason := Lab.unavailable():
        pytest.skip(reason)


@pytest.mark.alone
def test_arms_take_turns_and_a_link_is_slow_for_one_block():
    slow = {BAD: (5.0, MBIT)}
    heal = Action(do="link", at_op=4)
    blocks = [
        Block(name="three", arm="strict3", ops=3, num_bytes=SMALL),
        Block(name="well", arm="strict", ops=3, num_bytes=SMALL),
        Block(name="gloo", arm="gloo", ops=3, num_bytes=SMALL),
        Block(name="slow", arm="strict", ops=4, num_bytes=4 * SMALL, links=slow,
              actions=(heal,)),
        Block(name="late", arm="skip", ops=4, num_bytes=SMALL, healthy=(0, 1, 2),
              pauses={BAD: [0.0, 0.0, 0.0, 0.3]}, step_s=0.5, is_checked=True),
    ]  # fmt: skip
    with runs.lab_of() as lab:
        found = runs.run(lab, blocks)
        # Changes made by a block end with the block.
        assert {(link.up_mbit, link.down_mbit) for link in lab.links} == {(MBIT, MBIT)}
    records.check_bits(found)
    assert [len(record.by_rank) for record in found] == [4] * 5
    assert found[0].by_rank[BAD]["ends"] == []
    times = {record.block.name: records.op_times(record) for record in found}
    assert [len(times[name]) for name in times] == [3, 3, 3, 4, 4]
    # 384 KiB of rank 3 at 5 Mbit/s take 600 ms, minus the burst of 96 KiB. The last
    # call has the fast link again, because rank 0 has ended the block.
    assert min(times["slow"][1:3]) > 400
    assert len(found[3].done) == 1
    late = found[4].by_rank[BAD]
    last = found[4].by_rank[0]
    assert late["begins"][3] - last["begins"][3] > 0.25
    assert len(late["sums"]) == 4


@pytest.mark.beside
def test_training_catches_up_and_its_parameters_are_compared():
    block = Block(
        name="steps",
        arm="skip",
        ops=20,
        num_bytes=SMALL,
        pauses={BAD: [0.4 if step in (12, 16) else 0.0 for step in range(20)]},
        gap_s=0.02,
        check_every=5,
    )
    with runs.lab_of() as lab:
        (found,) = runs.run(lab, [block], program=runs.STEP_RANK)
    seen = [found.by_rank[rank] for rank in range(4)]
    assert [len(own["sums"]) for own in seen] == [4] * 4
    assert len({tuple(own["sums"]) for own in seen}) == 1
    assert [len(own["ends"]) for own in seen] == [20] * 4
    assert len(records.step_times(found)) == 19


@pytest.mark.beside
def test_a_failing_rank_is_reported_in_one_sentence():
    block = Block(
        name="killed", arm="strict", ops=400, num_bytes=SMALL,
        actions=(Action(do="kill", at_op=3),),
    )  # fmt: skip
    with runs.lab_of() as lab, pytest.raises(CaseError) as caught:
        runs.run(lab, [block], may_die=(BAD,))
    assert "PeerLostError" in str(caught.value)
    assert "\n" not in str(caught.value)
