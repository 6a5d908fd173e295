# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Without ranks; tests/python/multiproc/test_replayed_steps.py has trainings."""

import contextlib

import torch

from aikido_torch.ddp._user_step import UserStep


class Recorder:
    """Stands for the buckets and the audit, and records the order of events."""

    def __init__(self):
        self.events = []

    @contextlib.contextmanager
    def gradients(self, others):
        self.events.append(f"sums of {len(others)}")
        yield
        self.events.append("own gradients")

    @contextlib.contextmanager
    def replaying(self):
        self.events.append("audit")
        yield
        self.events.append("end of audit")


def test_a_replay_applies_the_sums_and_restores_the_own_gradients():
    seen = Recorder()
    parameters = [torch.nn.Parameter(torch.ones(1)) for _ in range(2)]
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    step = UserStep(
        optimizer,
        lambda: seen.events.append("apply"),
        lambda: seen.events.append("after"),
    )
    step.replay(seen, seen)
    assert seen.events == [
        *("sums of 2", "audit", "apply", "end of audit", "own gradients", "after")
    ]


def test_a_loop_without_after_step_replays_too():
    seen = Recorder()
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    UserStep(optimizer, lambda: seen.events.append("apply"), None).replay(seen, seen)
    assert seen.events[2] == "apply"
