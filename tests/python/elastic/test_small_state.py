# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""State that is restored after the failed attempt of a step."""

import torch

from aikido_torch.elastic._small_state import SmallState


def test_a_failed_attempt_leaves_no_trace_besides_the_parameters():
    model = torch.nn.BatchNorm1d(3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    optimizer.step()
    state = SmallState(model, optimizer, {"schedule": schedule})
    restore = state.keep()
    mean, number = model.running_mean.clone(), torch.get_rng_state()
    model(torch.randn(4, 3))
    schedule.step()
    assert optimizer.param_groups[0]["lr"] == 0.05
    assert not torch.equal(model.running_mean, mean)
    restore()
    assert optimizer.param_groups[0]["lr"] == 0.1
    assert schedule.last_epoch == 0
    assert torch.equal(model.running_mean, mean)
    assert torch.equal(torch.get_rng_state(), number)


def test_what_is_kept_does_not_change_with_the_objects():
    model, log = torch.nn.Linear(1, 1), {"losses": [1.0]}

    class Log:
        def state_dict(self):
            return log

        def load_state_dict(self, state):
            log.update(state)

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    restore = SmallState(model, optimizer, {"log": Log()}).keep()
    log["losses"].append(2.0)
    restore()
    assert log == {"losses": [1.0]}
