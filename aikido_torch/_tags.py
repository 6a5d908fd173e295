# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Registry of the tags of point-to-point messages.

Each user of messages has a range of its own, so that no message is taken for a message
of another user on the same group. csrc/base/message_tags.h has the ranges of C++.
"""

from dataclasses import dataclass

from aikido_torch.errors import ConfigError

__all__ = [
    "CALL_WATCH",
    "ITEM_DATA",
    "LINKS",
    "LOST_ITEMS",
    "PIPELINE",
    "PIPELINE_FAILURE",
    "RANGES",
    "SHARDS",
    "STATE_TRANSFER",
    "USER",
]


@dataclass(frozen=True)
class TagRange:
    """Consecutive tags of one owner, the same on all groups.

    Attributes:
        name: name in error texts.
        owner: file that uses the tags, in the repository.
        first: lowest tag.
        size: number of tags.
    """

    name: str
    owner: str
    first: int
    size: int

    def __contains__(self, tag: int) -> bool:
        return self.first <= tag <= self.last

    @property
    def last(self) -> int:
        """Highest tag."""
        return self.first + self.size - 1

    def tag(self, index: int) -> int:
        """The tag with this index, from 0 on.

        Raises:
            ConfigError: the range has fewer tags.
        """
        if not 0 <= index < self.size:
            raise ConfigError(
                f"{self.name}: message number {index} has no tag; the numbers are from "
                f"0 to {self.size - 1}."
            )
        return self.first + index

    def cyclic(self, index: int) -> int:
        """The tag with this index; after the last tag the first one is used again."""
        return self.first + index % self.size


# By their first tags.
ROSTER = TagRange("a roster", "csrc/engine/rendezvous_roster.cpp", -(2**31), 1)
IPC = TagRange("shared device memory", "csrc/c10d/device/ipc.cpp", 1 - 2**31, 2**30)
USER = TagRange("send", "aikido_torch/_calls.py", 0, 2**30)
PIPELINE = TagRange(
    "a pipeline", "aikido_torch/pipeline/runtime/_executor.py", 2**30, 2**29
)
LINKS = TagRange("the link measurement", "aikido_torch/_links.py", 0x6000_0000, 1)
REASSIGN = TagRange(
    "an exchange of items", "csrc/engine/reassign_exchange.cpp", 0x6100_0000, 2**16
)
LOST_ITEMS = TagRange(
    "items of dead ranks", "aikido_torch/ddp/_survivor_mail.py", 0x6101_0000, 2**20
)
CALL_WATCH = TagRange(
    "the call watch", "aikido_torch/ddp/_call_watch.py", 0x6168_0000, 2**16
)
STATE_TRANSFER = TagRange(
    "the state transfer", "aikido_torch/recovery/_state_transfer.py", 0x6169_0000, 2**28
)
ITEM_DATA = TagRange(
    "data of items", "aikido_torch/ddp/_item_mail.py", 0x7169_0000, 2**16
)
SHARDS = TagRange(
    "shards of an elastic job", "aikido_torch/elastic/_group.py", 0x7200_0000, 2**16
)
PIPELINE_FAILURE = TagRange(
    "the failure of a pipeline", "aikido_torch/pipeline/runtime/_watch.py", 2**31 - 1, 1
)
RANGES = (
    ROSTER,
    IPC,
    USER,
    PIPELINE,
    LINKS,
    REASSIGN,
    LOST_ITEMS,
    CALL_WATCH,
    STATE_TRANSFER,
    ITEM_DATA,
    SHARDS,
    PIPELINE_FAILURE,
)
