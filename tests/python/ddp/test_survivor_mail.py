# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import time

import pytest

from aikido_torch._backend import backend_of
from aikido_torch.ddp._survivor_mail import SurvivorMail
from aikido_torch.testing import die, late, run_ranks

SIZE = 3


def received(mail, dead, rank, timeout_s=10.0):
    end = time.monotonic() + timeout_s
    while (numbers := mail.receive(dead, rank)) is None and time.monotonic() < end:
        late(0.001)
    return numbers


def exchange(rank, size, count):
    """Rank 2 dies, and the others tell each other numbers about it."""
    mail = SurvivorMail(backend_of(None), number=1)
    if rank == 2:
        die()
    other = 1 - rank
    first = mail.receive(2, other)
    mail.send(2, [other], [rank + (1 << 40), *range(count)])
    numbers = received(mail, 2, other)
    assert mail.receive(2, other) == numbers
    mail.send(1, [2], [7])  # to the dead rank
    assert mail.receive(1, 2) is None
    return first, numbers


@pytest.mark.multiproc
@pytest.mark.parametrize("count", [0, 510, 511, 2000])
def test_numbers_of_any_count_arrive_after_a_death(count):
    results = run_ranks(SIZE, exchange, count, may_die={2})
    for rank, (_, numbers) in enumerate(results[:2]):
        assert numbers == [1 - rank + (1 << 40), *range(count)]
