# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest
import torch
import torch.distributed as dist

from aikido_torch import Options
from aikido_torch._backend import backend_of, options_of
from aikido_torch._own_groups import (
    close,
    counted_from,
    group_beside,
    why_no_group_beside,
)


def count():
    return dist.distributed_c10d._world.group_count


def test_the_group_counter_of_torch_is_restored_after_use(group_of_one):
    def fail():
        with counted_from(1000):
            assert count() == 1000
            raise KeyError

    before = count()
    with pytest.raises(KeyError):
        fail()
    assert count() == before


def test_a_group_beside_another_group_has_its_options_and_can_be_closed(group_of_one):
    group = dist.new_group(
        backend="aikido", pg_options=Options(straggler_log_bytes=1 << 20)
    )
    assert why_no_group_beside(group) == ""
    before = count()
    first, second = (group_beside(group, number=number) for number in range(2))
    assert count() == before
    assert first.group_name != second.group_name
    assert options_of(backend_of(first)).straggler_log_bytes == 1 << 20
    assert backend_of(first).place == backend_of(group).place
    assert dist.get_process_group_ranks(first) == [0]
    close(first)
    close(first)
    total = torch.ones(1)
    dist.all_reduce(total, group=second)
    assert float(total) == 1


def test_an_unregistered_group_cannot_have_a_group_beside_it(group_of_one):
    group = dist.new_group(backend="aikido")
    dist.distributed_c10d._world.pg_group_ranks.pop(group)
    assert "does not know" in why_no_group_beside(group)
