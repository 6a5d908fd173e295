# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""A rank with a different state is found by its digest and repaired by a copy."""

import contextlib
import gc
import logging
import time

import pytest
import torch
import torch._dynamo  # imported once, before the fork
import torch.distributed as dist
from multiproc.test_replayed_steps import Adversarial, Training, bits
from torch import nn

from aikido_torch.errors import RanksDifferError
from aikido_torch.straggler import SkipStraggler
from aikido_torch.testing import die, late, run_ranks, stop

EVERY = 8
CHANGED_IN = 9
STEPS = 24
# So long that no rank is late, on a busy machine either.
PATIENT = SkipStraggler(min_contributors=2, floor_ms=9000, ceiling_ms=9000)


class Lines(logging.Handler):
    """Collects log messages."""

    def __init__(self):
        super().__init__()
        self.texts = []
        logging.getLogger("aikido").addHandler(self)

    def emit(self, record):
        self.texts.append(record.getMessage())


class Changed(Training):
    """One rank changes its own state once. No rank is late.

    Attributes:
        odd: the rank that changes.
        what: part of its state that it changes.
    """

    def __init__(self, rank, odd, what, **told):
        self.odd, self.what, self.more = odd, what, told
        self.was_changed = False
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

    def may_change(self, step):
        """True once, when the change is due."""
        is_due = step >= CHANGED_IN and self.rank == self.odd and not self.was_changed
        self.was_changed |= is_due
        return is_due

    def step(self, step):
        self.optimizer.zero_grad()
        self.loss(step).backward()
        if self.what == "gradient" and self.may_change(step):
            nn.utils.clip_grad_norm_(self.net.parameters(), 1e-3)
        self.optimizer.step()

    def run(self):
        lines, by_step, step = Lines(), {}, 0
        while (step := step + self.handle.catch_up()) < STEPS:
            by_step[step] = bits(*self.net.parameters())
            if self.what != "gradient" and self.may_change(step):
                self.change()
            self.step(step)
            step += 1
        self.handle.close()
        logging.getLogger("aikido").removeHandler(lines)
        return by_step, lines.texts


def train(rank, size, cases):
    return [Changed(rank, odd, what).run() for odd, what in cases]


# Name of the first tensor that differs some steps later.
FIRST = {"weight": "weight", "state": "bias", "rate": "weight", "gradient": "weight"}


@pytest.mark.beside
@pytest.mark.parametrize("size", [3, 2])
def test_a_difference_is_repaired_within_a_bounded_number_of_steps(size):
    # With two ranks, the state of the lower rank counts as right.
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
        assert ("(changed gradients)" in line) == (what == "gradient")


class _Failing(Changed):
    """A difference is an error."""

    def run(self):
        try:
            by_step, lines = super().run()
        except RanksDifferError as error:
            return error.rank, error.step, error.tensor, str(error)
        return max(by_step), tuple(lines)


def fail(rank, size, odd):
    # The step audit of the first steps does not detect a changed state.
    return _Failing(rank, odd, "state", check="error").run()


@pytest.mark.beside
@pytest.mark.parametrize("odd", [0, 2])
def test_a_difference_is_an_error_on_all_ranks_that_names_rank_step_and_tensor(odd):
    by_rank = run_ranks(3, fail, odd)
    assert len(set(by_rank)) == 1
    rank, step, tensor, text = by_rank[0]
    assert (rank, step, tensor) == (odd, 16, "bias")
    others = [rank for rank in range(3) if rank != odd]
    assert text.startswith(
        f"rank {odd} had another state than rank {others[0]}, {others[1]} before step "
        "16. The first difference is in bias. Likely reason: since step "
    )


class Strict(Changed):
    """The changed rank is late, and strict calls put the other ranks ahead."""

    def run(self):
        step = 0
        while True:
            step += self.handle.catch_up()
            if step >= STEPS:
                break
            if self.rank == self.odd and EVERY < step < 2 * EVERY + 5:
                late(0.05)
            if self.may_change(step):
                self.change()
            self.step(step)
            dist.broadcast(torch.zeros(1), 0)
            step += 1
        self.handle.close()
        return bits(*self.net.parameters()), self.handle._state_check.num_repairs


def train_strictly(rank, size):
    policy = SkipStraggler(min_contributors=2, floor_ms=5, ceiling_ms=5)
    return Strict(rank, 2, "state", policy=policy).run()


@pytest.mark.beside
def test_a_state_from_after_a_strict_call_is_requested_again():
    by_rank = run_ranks(3, train_strictly)
    assert len({found for found, _ in by_rank}) == 1
    assert by_rank[2][1] > 0


class Linked(Adversarial):
    """Two models in one loop; the second model differs on one rank."""

    def __init__(self, rank, odd, which):
        self.odd, self.which = odd, which
        super().__init__(rank)

    def prepare(self):
        super().prepare(check_every=EVERY, policy=PATIENT)
        self.told = {"check_every": EVERY, "policy": PATIENT}

    def run(self):
        lines, step, nets = Lines(), 0, (self.net, self.other)
        while (step := step + self.handle.catch_up()) < STEPS:
            assert self.other_handle.catch_up() == 0
            if step == CHANGED_IN and self.rank == self.odd:
                with torch.no_grad():
                    nets[self.which].bias[1] += 1
            self.step(step)
            step += 1
        logging.getLogger("aikido").removeHandler(lines)
        return [bits(*net.parameters()) for net in nets], lines.texts


LAST = 7  # steps; too few for another digest


class Ending(Changed):
    """One rank changes its state after the last digest of the training."""

    def run(self):
        self.lines, step = Lines(), 0
        while (step := step + self.handle.catch_up()) < LAST:
            if step == LAST - 2 and self.rank == self.odd:
                self.change()
            self.step(step)
            step += 1


def end(rank, size, odd, check, way):
    """Returns the parameters and the errors or log messages."""
    training = Ending(rank, odd, "state", check=check)
    training.run()
    try:
        if way == "close":
            training.handle.close()
            dist.barrier()
        dist.destroy_process_group()
    except RanksDifferError as error:
        return bits(*training.net.parameters()), [str(error)]
    return bits(*training.net.parameters()), training.lines.texts


@pytest.mark.beside
@pytest.mark.parametrize("way", ["close", "destroy"])
def test_the_last_steps_are_compared_at_the_end_and_repaired(way):
    by_rank = run_ranks(3, end, 0, "warn", way)
    assert len({found for found, _ in by_rank}) == 1
    assert [len(texts) for _, texts in by_rank] == [1, 0, 0]
    (line,) = by_rank[0][1]
    assert line.startswith("rank 0 had another state than rank 1, 2 before step 7. The")
    assert "first difference is in bias. Likely reason: since step 0 " in line
    assert line.endswith("The state of rank 1 was copied.")


@pytest.mark.beside
@pytest.mark.parametrize("way", ["close", "destroy"])
def test_a_difference_in_the_last_steps_is_an_error_on_all_ranks(way):
    by_rank = run_ranks(3, end, 2, "error", way)
    assert len({found for found, _ in by_rank}) == 2
    assert len({tuple(texts) for _, texts in by_rank}) == 1
    assert by_rank[0][1][0].startswith("rank 2 had another state than rank 0, 1 before")


def end_apart(rank, size, how):
    """One rank leaves at another time or in another way than the others."""
    training = Ending(rank, None, "weight")
    training.run()
    begin = time.monotonic()
    if rank == 1:
        if how == "late":
            late(0.5)
        elif how == "stopped":
            stop(0.5)
        elif how == "dead":
            die()
        elif how == "gone":
            del training
            gc.collect()
        else:
            with contextlib.suppress(ValueError):
                try:
                    raise ValueError("of the loop")
                finally:
                    dist.destroy_process_group()
    if dist.is_initialized():
        dist.destroy_process_group()
    return time.monotonic() - begin


@pytest.mark.beside
@pytest.mark.parametrize("how", ["late", "stopped", "dead", "gone", "raising"])
def test_at_the_end_ranks_wait_only_as_long_as_needed(how):
    by_rank = run_ranks(3, end_apart, how, may_die=(1,) if how == "dead" else ())
    # No rank has waited for the whole linger time of 5 s.
    assert all(took < 4.5 for took in by_rank if took is not None), by_rank
    if how in ("late", "stopped"):
        assert by_rank[0] > 0.3


def disagree(rank, size):
    """One rank raises in its step and leaves."""
    training = Changed(rank, 2, "rate", check="error")
    try:
        training.run()
    except RanksDifferError as error:
        return str(error)
    return training.handle.steps


@pytest.mark.beside
def test_a_rank_with_an_error_in_its_loop_does_not_stop_the_others():
    by_rank = run_ranks(3, disagree, group_timeout=20.0)
    assert by_rank[:2] == [STEPS, STEPS]
    assert by_rank[2].startswith("Options of the optimizer change between two steps")


def train_linked(rank, size, cases):
    return [Linked(rank, *case).run() for case in cases]


@pytest.mark.beside
def test_each_of_several_models_in_one_loop_is_repaired():
    cases = [(0, 0), (2, 1)]
    by_rank = run_ranks(3, train_linked, cases, deadline=100.0)
    for i, (odd, _) in enumerate(cases):
        assert len({tuple(found[i][0]) for found in by_rank}) == 1
        lines = [found[i][1] for found in by_rank]
        assert [rank for rank in range(3) if lines[rank]] == [odd]
        assert "The first difference is in bias." in lines[odd][0]
