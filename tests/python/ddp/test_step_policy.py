# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest

from aikido_torch.ddp._step_policy import StepPolicy, why_nobody_is_skipped
from aikido_torch.straggler import ActiveBackup, SkipStraggler, WaitAll


def test_the_limit_on_skips_in_a_row_counts_steps():
    policy = StepPolicy(SkipStraggler(max_consecutive_skips=4))
    assert policy.native(8) == SkipStraggler(max_consecutive_skips=32).native()
    assert policy.native(1) == SkipStraggler(max_consecutive_skips=4).native()
    most = StepPolicy(SkipStraggler(max_consecutive_skips=1_000_000)).native(8)
    assert most == SkipStraggler(max_consecutive_skips=1_000_000).native()
    assert StepPolicy(WaitAll()).native(8) == WaitAll().native()


@pytest.mark.parametrize(
    ("policy", "size", "text"),
    [
        (SkipStraggler(), 1, ""),
        (SkipStraggler(), 3, ""),
        (SkipStraggler(min_contributors=1), 2, ""),
        (ActiveBackup(), 2, ""),
        (WaitAll(), 2, ""),
        (SkipStraggler(), 2, "register: of two ranks none is skipped, since more than"),
        (
            SkipStraggler(min_contributors=3),
            3,
            "register: min_contributors is 3 in a group of 3 ranks, so nobody is ever "
            "skipped; give a smaller one, or leave it out.",
        ),
    ],
)
def test_a_policy_that_needs_everybody_is_questioned(policy, size, text):
    said = why_nobody_is_skipped(policy, size)
    assert said.startswith(text)
    assert bool(said) == bool(text)
