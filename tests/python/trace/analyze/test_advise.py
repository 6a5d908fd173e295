# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest
from torch.distributed import HashStore

from aikido_torch import trace
from aikido_torch.errors import ConfigError
from aikido_torch.trace.analyze._verdict import Verdict
from aikido_torch.trace.record._trace_store import Board


def verdict(cause, rank, pattern="steady", step=0):
    return Verdict(cause, rank, pattern, 0.1, step, step + 4, "A sentence.")


def test_named_members_appear_in_the_advice(group_of_one):
    assert trace.apply_advice(verdict("compute", 0)) == {0: "caller"}
    assert trace.apply_advice([verdict("compute", 5)], group=group_of_one) == {}
    assert trace.apply_advice([]) == {}


def test_a_backend_refuses_unknown_ranks_and_unknown_advice(group_of_one):
    from aikido_torch._backend import backend_of

    backend = backend_of(None)
    for rank, advice in [(1, "link"), (-1, "link"), (0, "both")]:
        with pytest.raises(ValueError, match=r"rank|advice"):
            backend.advise(rank, advice)


def test_without_a_group_or_with_invalid_numbers_it_is_refused(group_of_one):
    for arguments, text in [
        ({"steps": 2}, "steps is 2"),
        ({"steps": 3.5}, "steps is 3.5"),
        ({"every_s": 0.0}, "every_s is 0.0"),
        ({"every_s": float("inf")}, "every_s is inf"),
        ({}, "No rank of this job listens"),
    ]:
        with pytest.raises(ConfigError, match=text):
            trace.auto_advise(**arguments)
    import torch.distributed as dist

    dist.destroy_process_group()
    for call in (trace.auto_advise, lambda: trace.apply_advice([])):
        with pytest.raises(ConfigError, match="no process group"):
            call()


def test_a_board_keeps_the_last_verdict_of_each_group():
    board = Board(HashStore())
    assert board.num_verdicts("") == 0
    board.say("", vars(verdict("compute", 1)))
    board.say("", vars(verdict("input", 2, step=5)))
    board.say("other", vars(verdict("none", None, "none")))
    assert board.num_verdicts("") == 2
    assert board.verdict("", 1) is None
    assert Verdict.of_json(board.verdict("", 2)) == verdict("input", 2, step=5)
    assert Verdict.of_json(board.verdict("other", 1)).rank is None
