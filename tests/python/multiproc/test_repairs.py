# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""A rank whose state differs is found by its digest, and copies that of the others."""

import logging

import pytest
import torch
import torch.distributed as dist
from multiproc.test_replayed_steps import Training, bits

from aikido_torch.straggler import SkipStraggler
from aikido_torch.testing import run_ranks

EVERY = 8
CHANGED_IN = 9
STEPS = 24
# Nobody is late, however busy the machine is.
PATIENT = SkipStraggler(min_contributors=2, floor_ms=9000, ceiling_ms=9000)


class Lines(logging.Handler):
    """What is logged."""

    def __init__(self):
        super().__init__()
        self.texts = []
        logging.getLogger("aikido").addHandler(self)

    def emit(self, record):
        self.texts.append(record.getMessage())


class Changed(Training):
    """One rank changes its own state once. Nobody is late.

    Attributes:
        odd: that rank.
        what: that it changes.
    """

    def __init__(self, rank, odd, what, **told):
        self.odd, self.what, self.more = odd, what, told
        super().__init__(rank)

    def prepare(self):
        self.told = {"check_every": EVERY, "policy": PATIENT, **self.more}

    def change(self):
        with torch.no_grad():
            if self.what == "weight":
                self.net.weight[3, 3] += 0.5
            elif self.what == "state":
                self.optimizer.state[self.net.bias]["exp_avg"][2] -= 0.5
            elif self.what == "rate":
                self.optimizer.param_groups[0]["lr"] *= 2

    def run(self):
        lines, by_step, step, was_changed = Lines(), {}, 0, False
        while (step := step + self.handle.catch_up()) < STEPS:
            by_step[step] = bits(*self.net.parameters())
            if step >= CHANGED_IN and self.rank == self.odd and not was_changed:
                was_changed = True
                self.change()
            self.step(step)
            step += 1
        dist.barrier()
        logging.getLogger("aikido").removeHandler(lines)
        return by_step, lines.texts


def train(rank, size, cases):
    return [Changed(rank, odd, what).run() for odd, what in cases]


# The first tensor that differs some steps later.
FIRST = {"weight": "weight", "state": "bias", "rate": "weight"}


@pytest.mark.beside
@pytest.mark.parametrize("size", [3, 2])
def test_no_difference_lives_longer_than_so_many_steps(size):
    # Of two ranks the lower one is taken for right.
    odds = range(size) if size > 2 else [1]
    cases = [(odd, what) for odd in odds for what in FIRST]
    by_rank = run_ranks(size, train, cases, deadline=100.0)
    for i, (odd, what) in enumerate(cases):
        steps = [found[i][0] for found in by_rank]
        for step in steps[0]:
            values = {by_step[step] for by_step in steps}
            was_changed = step > CHANGED_IN
            assert len(values) == 1 or was_changed, (odd, what, step)
            if step > CHANGED_IN + EVERY + 4:
                assert len(values) == 1, (odd, what, step)
        assert len({by_step[CHANGED_IN + 2] for by_step in steps}) == 2, (odd, what)
        lines = [found[i][1] for found in by_rank]
        assert [rank for rank in range(size) if lines[rank]] == [odd]
        (line,) = lines[odd]
        assert line.startswith(f"rank {odd} had another state than rank ")
        assert f"The first difference is in {FIRST[what]}. Likely reason: since" in line
        assert "this rank has replayed nothing" in line
