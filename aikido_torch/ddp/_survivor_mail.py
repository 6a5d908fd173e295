# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Messages between the survivors of a dead rank, outside of all collectives.

The survivors of each dead rank have a tag of their own. A message is a list of whole
numbers in slots of equal size, because a receive takes messages of exactly its size.
All transfers are posted and polled later, so no call waits.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

from aikido_torch import _C, _tags
from aikido_torch.errors import AikidoError

__all__ = ["SurvivorMail"]

_SLOT = 512  # whole numbers; the first one is the length of the message


@dataclass
class _Incoming:
    """Message of one survivor, as far as it has been received."""

    numbers: list[int] = field(default_factory=list)
    slot: torch.Tensor | None = None
    work: dist.Work | None = None

    @property
    def is_whole(self) -> bool:
        return bool(self.numbers) and len(self.numbers) > self.numbers[0]


class SurvivorMail:
    """One rank's end of the messages. For the training thread only.

    Args:
        backend: backend of the group.
        number: equal on all ranks, and different for each model of a group.
    """

    def __init__(self, backend: _C.AikidoBackend, number: int) -> None:
        self._backend: Any = backend
        _, size = backend.place
        self._first_tag = number * size
        self._incoming: dict[tuple[int, int], _Incoming] = {}
        self._sent: list[tuple[torch.Tensor, dist.Work]] = []

    def send(self, dead: int, ranks: list[int], numbers: list[int]) -> None:
        """Sends `numbers` about `dead` to some ranks. Once for each dead rank."""
        numbers = [len(numbers), *numbers]
        numbers += [0] * (-len(numbers) % _SLOT)
        slots = torch.tensor(numbers, dtype=torch.int64).reshape(-1, _SLOT).unbind()
        self._sent = [sent for sent in self._sent if not sent[1].is_completed()]
        for rank in ranks:
            for slot in slots:
                try:
                    work = self._backend.send([slot], rank, self._tag(dead))
                except AikidoError:
                    break  # that rank is lost, too
                self._sent.append((slot, work))

    def receive(self, dead: int, rank: int) -> list[int] | None:
        """The numbers of `rank` about `dead`; None: they have not arrived."""
        message = self._incoming.setdefault((dead, rank), _Incoming())
        while not message.is_whole:
            if message.work is None and not self._post(message, dead, rank):
                return None
            assert message.work is not None
            assert message.slot is not None
            if not message.work.is_completed():
                return None
            work, message.work = message.work, None
            try:
                work.wait()
            except AikidoError:
                return None  # posted again in the next call, if the rank was silent
            message.numbers += message.slot.tolist()
        return message.numbers[1 : 1 + message.numbers[0]]

    def _post(self, message: _Incoming, dead: int, rank: int) -> bool:
        message.slot = torch.empty(_SLOT, dtype=torch.int64)
        try:
            message.work = self._backend.recv([message.slot], rank, self._tag(dead))
        except AikidoError:
            return False
        return True

    def _tag(self, dead: int) -> int:
        return _tags.LOST_ITEMS.cyclic(self._first_tag + dead)
