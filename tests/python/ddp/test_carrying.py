# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Without ranks; tests/python/multiproc/test_carry.py has late ranks."""

from types import SimpleNamespace

import torch

from aikido_torch.ddp._carrying import Carrying

THIS, OTHER = 0, 1
SIZE = 2


def work_without(rank):
    """A call of both ranks that has ended without `rank`."""
    mask = [r for r in (THIS, OTHER) if r != rank]
    shard = SimpleNamespace(first_element=0, num_elements=SIZE, contributors=mask)
    outcome = SimpleNamespace(shards=[shard], skipped={rank: "late"})
    return SimpleNamespace(is_completed=lambda: True, outcome=lambda: outcome)


def bucket_of(index, tensor):
    return SimpleNamespace(index=lambda: index, buffer=lambda: tensor)


def test_what_was_left_out_of_one_step_is_added_to_its_bucket_in_the_next():
    carrying = Carrying(THIS, is_on=True)
    for index in (0, 1):
        bucket = bucket_of(index, torch.full((SIZE,), 1.0 + index))
        carrying.add_to(bucket, step=5)
        carrying.watch(bucket, work_without(THIS if index == 1 else OTHER))
    assert carrying.num_steps == 0
    given = []
    for index in (0, 1):
        bucket = bucket_of(index, torch.full((SIZE,), 10.0))
        carrying.add_to(bucket, step=6)
        given.append(bucket.buffer().tolist())
    assert given == [[10.0] * SIZE, [12.0] * SIZE]
    assert carrying.num_steps == 1


def test_a_step_with_several_late_buckets_counts_once():
    carrying = Carrying(THIS, is_on=True)
    for step in (0, 1, 2):
        for index in (0, 1):
            bucket = bucket_of(index, torch.ones(SIZE))
            carrying.add_to(bucket, step)
            carrying.watch(bucket, work_without(THIS))
    assert carrying.num_steps == 2
