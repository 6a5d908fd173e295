# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Ranks of a group of one; tests/python/multiproc/test_pipeline.py has several."""

import pytest
from torch import nn

from aikido_torch import pipeline
from aikido_torch.errors import ConfigError
from aikido_torch.pipeline.runtime._ranks import Ranks


def schedule(stages=3):
    return pipeline.schedule(
        "interleaved_1f1b", stages=stages, stages_per_rank=stages, micro_batches=4
    )


def test_ranks_are_named_by_their_stages(group_of_one):
    assert Ranks(schedule(1), None).name_of(0) == "stage 0 (rank 0)"
    ranks = Ranks(schedule(), None)
    assert ranks.name_of(0) == "stages 0, 1, 2 (rank 0)"
    assert (ranks.rank, ranks.replicas, ranks.is_aikido) == (0, {}, True)
    assert ranks.replicas_of(0) == []
    ranks.make_equal(0, nn.Linear(2, 2))  # there is no other rank
    ranks.close()


def test_an_error_of_one_rank_is_raised_on_all(group_of_one):
    ranks = Ranks(schedule(), None)
    assert ranks.together(lambda: 3) == [3]

    def refuse():
        raise ConfigError("no")

    with pytest.raises(ConfigError, match=r"^no$"):
        ranks.together(refuse)


def test_the_group_must_be_as_large_as_the_schedule(group_of_one):
    made = pipeline.schedule("1f1b", stages=2, replicas=[2, 1], micro_batches=4)
    text = r"^the schedule is for 3 ranks \(stages with 2, 1\), and the group has 1; "
    with pytest.raises(ConfigError, match=text):
        Ranks(made, None)


def test_without_a_group_the_error_asks_for_one():
    with pytest.raises(
        ConfigError, match=r"^There is no process group yet; call init_"
    ):
        Ranks(schedule(), None)
