# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Trainings in which most steps are handled in C++ (csrc/bind/quiet_steps.h)."""

import time
import warnings

import torch
import torch._dynamo  # imported before the fork; some optimizers need it
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from aikido_torch import ddp
from aikido_torch.errors import ConfigError
from aikido_torch.straggler import SkipStraggler
from aikido_torch.testing import late, run_ranks

STEPS = 60
LATE = 2


class Training:
    """Training steps of a small model with several buckets."""

    def __init__(self, rank, floor_ms=200.0, **told):
        torch.manual_seed(0)
        self.rank = rank
        self.net = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
        self.model = DistributedDataParallel(self.net, bucket_cap_mb=0.0001)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.05)
        policy = SkipStraggler(floor_ms=floor_ms, ceiling_ms=floor_ms)
        self.handle = ddp.register(
            self.model, optimizer=self.optimizer, policy=policy, **told
        )
        self.num_slow = 0
        self.reduce = self.handle._reduce
        self.handle._reduce = self._count

    def _count(self, bucket, buffer):
        self.num_slow += bucket.index() == 0
        return self.reduce(bucket, buffer)

    def backward(self, step):
        random = torch.Generator().manual_seed(100 * step + self.rank)
        self.model(torch.randn(4, 8, generator=random)).square().mean().backward()

    def step(self, step):
        self.optimizer.zero_grad()
        self.backward(step)
        self.optimizer.step()

    def weights(self):
        return torch.cat([p.detach().flatten() for p in self.net.parameters()])


def equal_on_all(tensor):
    found = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(found, tensor)
    return all(torch.equal(t, found[0]) for t in found)


def nobody_late(rank, size):
    training = Training(rank)
    told, step = [], 0
    while (step := step + training.handle.catch_up()) < STEPS:
        training.step(step)
        step += 1
        told.append(training.handle.steps)
    handle = training.handle
    is_right = told == list(range(1, STEPS + 1))
    by_step = list(handle.by_step)
    ends = [s.ended_at for s in by_step]
    return (
        training.num_slow,
        is_right,
        [s.step for s in by_step] == list(range(STEPS)),
        {s.way for s in by_step},
        len(handle.outcomes) == handle._backend.num_calls,
        ends == sorted(ends) and 0 <= time.monotonic() - ends[-1] < 5,
        equal_on_all(training.weights()),
    )


def test_most_steps_of_a_healthy_training_are_quiet_and_all_are_recorded():
    for found in run_ranks(3, nobody_late):
        num_slow, *rest = found
        # Not quiet: the first ten, every eighth, and steps in which a message arrives.
        assert num_slow < STEPS / 2
        assert rest == [True, True, {"own"}, True, True, True]


def late_twice(rank, size):
    training = Training(rank, floor_ms=20.0)
    step = 0
    while (step := step + training.handle.catch_up()) < STEPS:
        if rank == LATE and step in (25, 44):
            late(0.3)
        training.step(step)
        step += 1
        late(0.01)
    handle = training.handle
    handle.close()
    replayed = [s.step for s in handle.by_step if s.way == "replayed"]
    return (
        handle.steps,
        len(handle.by_step),
        len(replayed),
        equal_on_all(training.weights()),
    )


def test_a_rank_that_is_late_between_quiet_steps_replays_the_missed_steps():
    found = run_ranks(3, late_twice)
    assert [(steps, booked, equal) for steps, booked, _, equal in found] == [
        (STEPS, STEPS, True)
    ] * 3
    assert found[LATE][2] >= 10


def ask_in_each_step(rank, size, is_behind):
    training = Training(rank, floor_ms=20.0)
    met, step = [], 0
    while (step := step + training.handle.catch_up()) < STEPS:
        if rank == LATE and step == 25:
            late(0.3)
        if not is_behind and training.handle.every(10):
            dist.all_reduce(torch.ones(1))
            met.append(step)
        training.step(step)
        step += 1
        if is_behind and training.handle.every(10):
            dist.all_reduce(torch.ones(1))
            met.append(step)
        late(0.01)
    return met, equal_on_all(training.weights()), training.num_slow


def test_all_ranks_meet_if_every_is_true_before_or_after_a_quiet_step():
    for is_behind in (False, True):
        found = run_ranks(3, ask_in_each_step, is_behind)
        met = [10, 20, 30, 40, 50, *([60] if is_behind else [])]
        assert [(where, equal) for where, equal, _ in found] == [(met, True)] * 3
        assert all(num_slow < STEPS - 10 for _, _, num_slow in found[:LATE])


def two_backwards(rank, size):
    training = Training(rank)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for step in range(30):
            training.handle.catch_up()
            if step == 21:  # a quiet step
                training.backward(step)
            training.step(step)
            texts = [str(w.message) for w in told if "backwards" in str(w.message)]
            if texts:
                return step, texts
    return None


def test_two_backwards_for_one_step_give_a_warning_in_a_quiet_step():
    for found in run_ranks(3, two_backwards):
        assert found is not None
        step, texts = found
        assert step == 21
        assert len(texts) == 1
        assert "makes 2 backwards" in texts[0]


def fails_in_a_quiet_step(rank, size):
    """The watch of the calls finds an error during a backward."""
    training = Training(rank)
    for step in range(20):
        training.handle.catch_up()
        training.step(step)
    watch = training.handle._calls._watch
    before = training.num_slow
    inside = training.backward

    def backward(step):
        def fail(gradient):
            watch.failure = "a mistake of the loop"
            watch.quiet.set_alarm(True)

        hook = next(training.net.parameters()).register_hook(fail)
        try:
            inside(step)
        finally:
            hook.remove()

    training.handle.catch_up()
    weights = training.weights()
    raised = ""
    try:
        backward(20)
    except ConfigError as error:
        raised = str(error)
    watch.failure = ""
    return raised, training.num_slow == before, torch.equal(weights, training.weights())


def test_an_error_is_raised_at_the_end_of_the_backward_of_a_quiet_step():
    found = run_ranks(3, fails_in_a_quiet_step)
    assert found == [("a mistake of the loop", True, True)] * 3


def clamps_from(rank, size, first):
    training = Training(rank)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for step in range(first + 10):
            training.handle.catch_up()
            training.optimizer.zero_grad()
            training.backward(step)
            if step >= first:
                nn.utils.clip_grad_norm_(training.net.parameters(), 1e-3)
            training.optimizer.step()
    found = [str(w.message) for w in told if "Gradients change" in str(w.message)]
    return len(found), training.num_slow < first


def test_gradients_changed_after_the_backward_of_a_quiet_step_give_a_warning():
    # Of the steps 15 to 24, the audit examines the quiet steps 16 and 24.
    assert run_ranks(3, clamps_from, 15) == [(1, True)] * 3


def schedules_in_its_loop(rank, size, first):
    """The learning rate changes between catch_up() and the backward, not in apply."""
    training = Training(rank, apply=lambda: training.optimizer.step(), state={})
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for step in range(first + 3):
            training.handle.catch_up()
            if step == first:
                training.optimizer.param_groups[0]["lr"] *= 0.5
            training.step(step)
    found = [
        str(w.message) for w in told if "Options of the optimizer" in str(w.message)
    ]
    return len(found), training.num_slow < first


def test_a_learning_rate_that_changes_once_in_a_quiet_step_gives_a_warning():
    # The step audit checks nothing else in this step.
    assert run_ranks(3, schedules_in_its_loop, 27) == [(1, True)] * 3


def schedules_in_apply(rank, size, steps):
    """The loop calls catch_up only in every other step."""

    def apply():
        training.optimizer.step()
        training.optimizer.param_groups[0]["lr"] *= 0.99

    training = Training(rank, apply=apply, state={})
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for step in range(steps):
            if step % 2 == 0:
                training.handle.catch_up()
            training.optimizer.zero_grad()
            training.backward(step)
            apply()
    return [
        str(w.message) for w in told if "Options of the optimizer" in str(w.message)
    ]


def test_a_learning_rate_changed_by_apply_gives_no_warning():
    # The first steps are not quiet and follow the same rule.
    assert run_ranks(3, schedules_in_apply, 40) == [[]] * 3
