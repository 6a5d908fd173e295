# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Adds the ranks of the job to sentences that name ranks of a group."""

import re
from collections.abc import Sequence

import torch.distributed as dist

from aikido_torch import _C
from aikido_torch._backend import members_of

__all__ = ["job_ranks", "say_both"]

_MENTIONED = re.compile(r"\branks? (\d+(?:(?:, | and )\d+)*)")


def say_both(text: str, backend: _C.AikidoBackend) -> str:
    """`text`, followed by the ranks in the job of the group ranks that it names.

    The text is unchanged if the group is the whole job.
    """
    members = members_of(backend)
    size = dist.get_world_size() if dist.is_initialized() else len(members)
    return text + job_ranks(text, members, size)


def job_ranks(text: str, members: Sequence[int], size: int) -> str:
    """The sentence that `say_both` adds, or "".

    Args:
        text: names ranks of the group as "rank 1" or "rank 0, 2".
        members: the rank in the job of each rank of the group.
        size: ranks of the job.
    """
    if list(members) == list(range(size)):
        return ""
    found = {
        int(n) for m in _MENTIONED.finditer(text) for n in re.findall(r"\d+", m[1])
    }
    told = [f"rank {n} is rank {members[n]}" for n in sorted(found) if n < len(members)]
    if not told:
        return ""
    return f" (Ranks are those of the group; in the job {', '.join(told)}.)"
