# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import time

import pytest
import torch.distributed as dist

from aikido_torch._backend import backend_of
from aikido_torch.ddp._item_mail import ItemMail
from aikido_torch.testing import die, late, run_ranks

SIZE = 3
LARGE = 3_000_000
PATIENCE_S = 10.0


def data_of(rank):
    """Data of the items of a rank: item n has n bytes; 7 is not here, 9 is slow."""

    def find(label):
        if label == 7:
            return None
        if label == 9:
            late(0.5)
        return bytes([rank + 1]) * label

    return find


def fetch_items(rank, size):
    mail = ItemMail(backend_of(None), number=1)
    mail.serve(data_of(rank), lambda: True)
    other = 1 - rank
    found = []
    if rank != 2:
        found = [mail.fetch(other, n, PATIENCE_S) for n in (5, 0, LARGE, 7)]
        found.append(mail.fetch(other, 9, 0.05))  # its answer comes too late
        found.append(mail.fetch(other, 3, PATIENCE_S))
    dist.barrier()
    if rank == 2:
        die()
    begin = time.monotonic()
    found.append(mail.fetch(2, 4, 2.0))
    needed = time.monotonic() - begin
    found.append(mail.fetch(other, 6, PATIENCE_S))
    late(0.3)  # the other rank may still ask
    mail.close()
    mail.close()
    return found, needed


@pytest.mark.multiproc
def test_data_comes_from_a_live_owner_in_time():
    results = run_ranks(SIZE, fetch_items, may_die={2})
    for rank, (found, needed) in enumerate(results[:2]):
        byte = bytes([2 - rank])
        assert found[:4] == [byte * 5, b"", byte * LARGE, None]
        assert found[4:] == [None, byte * 3, None, byte * 6]
        assert needed < PATIENCE_S
