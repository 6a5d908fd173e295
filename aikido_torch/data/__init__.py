# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Which samples each rank computes in each step, and seeds that depend on the data.

`BackupSampler` gives each rank the batches of its own data shard and of the ranks that
it stands in for. `SeededDataset` and `seed_of` make the random numbers of a batch equal
on every rank that computes it.
"""

from aikido_torch.data._sampler import BackupSampler
from aikido_torch.data._seeds import SeededDataset, seed_of

__all__ = ["BackupSampler", "SeededDataset", "seed_of"]
