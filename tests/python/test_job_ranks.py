# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import torch.distributed as dist

from aikido_torch._backend import backend_of
from aikido_torch._job_ranks import job_ranks, say_both

TEXT = "rank 1 had another state than rank 0, 2 before step 9 of rank 7."


def test_both_ranks_are_named_if_the_group_is_not_the_job():
    assert job_ranks(TEXT, (4, 5, 9), 16) == (
        " (Ranks are those of the group; in the job rank 0 is rank 4, rank 1 is rank "
        "5, rank 2 is rank 9.)"
    )
    # Also if both numbers are equal, because the reader cannot know that.
    assert "rank 1 is rank 1" in job_ranks(TEXT, (0, 1, 2), 4)


def test_nothing_is_added_if_all_ranks_are_equal():
    assert job_ranks(TEXT, range(3), 3) == ""
    assert job_ranks("no number", (4, 5), 16) == ""


def test_the_group_of_the_whole_job_adds_nothing(group_of_one):
    assert say_both(TEXT, backend_of(dist.group.WORLD)) == TEXT
