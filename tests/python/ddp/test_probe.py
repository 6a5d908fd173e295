# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
from aikido_torch.ddp._probe import probe


def test_several_sizes_are_timed(group_of_one):
    found = probe(None)
    assert len(found) == 4
    sizes = [num_bytes for num_bytes, _ in found]
    assert sizes == sorted(set(sizes))
    assert all(0 < seconds < 1 for _, seconds in found)
