# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Errors of aikido. Their names tell the caller's next action.

All derive from torch's `DistBackendError`, so existing handlers go on working. An error
in the `backward()` of DistributedDataParallel is a `DistBackendError` itself, with the
same text: torch raises it there.
A late rank is never an error: see `Outcome`.
"""

from torch.distributed import DistBackendError

__all__ = [
    "AbortedError",
    "AikidoError",
    "ConfigError",
    "InternalError",
    "PeerLostError",
    "ProtocolError",
    "RanksDifferError",
    "RanksMayDifferWarning",
    "RetryLaterError",
    "TimedOutError",
    "UnsupportedError",
]


class AikidoError(DistBackendError):
    """Base of all errors of aikido.

    Attributes:
        rank: the rank that caused it, or None when nobody in particular did.
        operation: the call that failed ("all_reduce"), or None outside of calls.
        sequence_number: its number in the group, or None where it has none.
    """

    def __init__(
        self,
        message: str,
        *,
        rank: int | None = None,
        operation: str | None = None,
        sequence_number: int | None = None,
    ) -> None:
        super().__init__(message)
        self.rank = rank
        self.operation = operation
        self.sequence_number = sequence_number


class RetryLaterError(AikidoError):
    """Nothing is broken: try again."""


class PeerLostError(AikidoError):
    """A rank died, left, or its connection broke: go on without it.

    `aikido_torch.reconfigure(...)` does that in place; a new group does it too.
    """


class TimedOutError(AikidoError):
    """A call passed its deadline: the text names who is missing."""


class AbortedError(AikidoError):
    """The call or the group was given up, here or by another rank."""


class UnsupportedError(AikidoError):
    """This build or backend cannot do it."""


class ConfigError(AikidoError, ValueError):
    """The call or an option is wrong; nothing was sent."""


class ProtocolError(AikidoError):
    """A peer speaks another version or nonsense: check the installation."""


class RanksDifferError(AikidoError):
    """Ranks have other parameters than others, or will have: correct the loop.

    Attributes:
        step: optimizer steps that the state has behind it in which the ranks differ;
            None: they do not differ yet.
        tensor: the first tensor or option that differs; None: it is not known.
    """

    def __init__(
        self,
        message: str,
        *,
        rank: int | None = None,
        operation: str | None = None,
        sequence_number: int | None = None,
        step: int | None = None,
        tensor: str | None = None,
    ) -> None:
        super().__init__(
            message, rank=rank, operation=operation, sequence_number=sequence_number
        )
        self.step = step
        self.tensor = tensor


class InternalError(AikidoError):
    """A defect of aikido: please report it."""


class RanksMayDifferWarning(Warning):
    """The loop does something in a step that a replayed step leaves out.

    Always shown: no filter of a framework hides it.
    """
