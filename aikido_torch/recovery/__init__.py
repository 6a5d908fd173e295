# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Bringing a rank to the state of the other ranks, and proof that states are equal.

Every feature in which a rank may miss steps is built on this package: the training
state, its copy from rank to rank, the choice between replay and copy, digests, votes
about them, and the check at the end. It does not need DistributedDataParallel.

The package exports no names. `aikido_torch.ddp` exports the public names.
"""

__all__: list[str] = []
