# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest

from aikido_torch.ddp._step_policy import (
    StepPolicy,
    why_nobody_is_skipped,
    why_the_log_is_small,
)
from aikido_torch.straggler import ActiveBackup, SkipStraggler, WaitAll


def test_the_limit_on_skips_in_a_row_counts_steps():
    policy = StepPolicy(SkipStraggler(max_consecutive_skips=4))
    assert policy.native(8) == SkipStraggler(max_consecutive_skips=32).native()
    assert policy.native(1) == SkipStraggler(max_consecutive_skips=4).native()
    most = StepPolicy(SkipStraggler(max_consecutive_skips=1_000_000)).native(8)
    assert most == SkipStraggler(max_consecutive_skips=1_000_000).native()
    assert StepPolicy(WaitAll()).native(8) == WaitAll().native()


@pytest.mark.parametrize(
    ("policy", "skips", "excludes"),
    [
        (WaitAll(), False, False),
        (SkipStraggler(), True, False),
        (SkipStraggler(on_log_full="exclude"), True, True),
        (ActiveBackup(), True, False),
    ],
)
def test_a_policy_may_skip_ranks_and_exclude_them(policy, skips, excludes):
    found = StepPolicy(policy)
    assert (found.skips, found.excludes) == (skips, excludes)
    assert found.strict == WaitAll().native()


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


@pytest.mark.parametrize(
    ("policy", "gradient_bytes", "log_bytes", "num_steps"),
    [
        (SkipStraggler(), 100, 99, 0),
        (SkipStraggler(), 100 << 20, 256 << 20, 2),
        (SkipStraggler(), 4 << 30, 256 << 20, 0),
        (ActiveBackup(backups=1), 100, 300, 3),
        (SkipStraggler(max_consecutive_skips=3), 100, 250, 2),
    ],
)
def test_a_log_that_holds_few_steps_is_told(
    policy, gradient_bytes, log_bytes, num_steps
):
    text = why_the_log_is_small(policy, gradient_bytes, log_bytes)
    assert f"has {gradient_bytes} bytes of gradients" in text
    assert f"keep {log_bytes} bytes of results" in text
    assert f"wait for a rank that is more than {num_steps} steps late" in text
    assert f"AIKIDO_STRAGGLER_LOG_BYTES={20 * gradient_bytes}" in text


@pytest.mark.parametrize(
    ("policy", "log_bytes"),
    [
        (SkipStraggler(), 400),
        (SkipStraggler(max_consecutive_skips=2), 200),
        (SkipStraggler(on_log_full="exclude"), 1),
        (WaitAll(), 1),
    ],
)
def test_a_log_that_is_large_enough_or_not_waited_for_is_not_told(policy, log_bytes):
    assert why_the_log_is_small(policy, 100, log_bytes) == ""
