# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Failures in a group of one; multiproc/test_pipeline_failures.py has other ranks."""

import pytest

from aikido_torch.errors import AbortedError, PeerLostError
from aikido_torch.pipeline.runtime._watch import Failure, Watch


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (Failure("stage 1 (rank 2) is lost", 2, is_lost=True), PeerLostError),
        (Failure("stage 0 (rank 0): größer", 0, is_lost=False), AbortedError),
        (Failure("x" * 5000, None, is_lost=False), AbortedError),
    ],
)
def test_a_failure_is_read_back_from_its_note(failure, kind):
    read = Failure.from_note(failure.to_note())
    assert failure.text.startswith(read.text)
    assert len(read.text) > 20
    assert (read.rank, read.is_lost) == (failure.rank, failure.is_lost)
    error = read.error()
    assert type(error) is kind
    assert (str(error), error.rank) == (read.text, failure.rank)


def test_the_first_failure_counts(group_of_one):
    watch = Watch(group_of_one, lambda rank: f"stage {rank}", lambda rank: True)
    assert watch.failure is None
    first = watch.fail(ValueError("of mine"), "stage 0 (rank 0)")
    assert first.text == "stage 0 (rank 0) has failed: ValueError: of mine"
    assert watch.failure is first
    assert watch.fail(ValueError("later"), "stage 0 (rank 0)") is first
    watch.close()
    watch.close()


def test_a_lost_rank_is_named_by_its_stage(group_of_one):
    watch = Watch(group_of_one, lambda rank: f"stage {rank}", lambda rank: True)
    failure = watch.fail(PeerLostError("gone", rank=4), "stage 0 (rank 0)")
    assert failure.text.startswith("stage 4 is lost, and nobody else has what it did: ")
    assert (failure.rank, failure.is_lost) == (4, True)
    watch.close()


@pytest.mark.parametrize(
    ("others", "sentence"),
    [([5], "Rank 5 has the same"), ([3, 5], "Ranks 3 and 5 have")],
)
def test_a_lost_replica_is_not_called_the_only_one(group_of_one, others, sentence):
    watch = Watch(
        group_of_one,
        lambda rank: f"stage {rank}",
        lambda rank: True,
        replicas_of=lambda rank: others,
    )
    text = watch.fail(PeerLostError("gone", rank=4), "stage 0 (rank 0)").text
    assert "nobody else" not in text
    assert sentence in text
    assert "a schedule of fewer replicas" in text
    watch.close()
