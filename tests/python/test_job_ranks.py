# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import torch.distributed as dist

from aikido_torch._backend import backend_of
from aikido_torch._job_ranks import job_ranks, say_both

TEXT = "rank 1 had another state than rank 0, 2 before step 9 of rank 7."


def test_both_ranks_are_said_where_the_group_is_not_the_job():
    assert job_ranks(TEXT, (4, 5, 9), 16) == (
        " (Ranks are those of the group; in the job rank 0 is rank 4, rank 1 is rank "
        "5, rank 2 is rank 9.)"
    )
    # Also where they are equal: the reader cannot know.
    assert "rank 1 is rank 1" in job_ranks(TEXT, (0, 1, 2), 4)


def test_nothing_is_added_where_there_is_no_other_rank():
    assert job_ranks(TEXT, range(3), 3) == ""
    assert job_ranks("no number", (4, 5), 16) == ""


def test_a_group_of_the_whole_job_says_no_more(group_of_one):
    assert say_both(TEXT, backend_of(dist.group.WORLD)) == TEXT
