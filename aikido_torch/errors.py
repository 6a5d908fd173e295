# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Exceptions of aikido. The name of a class says how to react.

All derive from torch's `DistBackendError`, so that existing handlers work. An error in
`backward()` of DistributedDataParallel is a `DistBackendError` itself with the same
text, because torch raises it. A late rank is never an error: see `Outcome`.
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
    """Base class of all exceptions of aikido.

    Attributes:
        rank: the rank that caused the error; None if no single rank did.
        operation: the failed call ("all_reduce"); None outside of calls.
        sequence_number: number of the call in its group; None if it has none.
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
    """A rank died or left, or its connection broke: continue without it.

    `aikido_torch.reconfigure(...)` continues with the same group; a new group works
    too.
    """


class TimedOutError(AikidoError):
    """A call exceeded its deadline; the text names the missing ranks."""


class AbortedError(AikidoError):
    """This rank or another rank gave up the call or the group."""


class UnsupportedError(AikidoError):
    """This build or backend cannot do it."""


class ConfigError(AikidoError, ValueError):
    """The call or an option is wrong; nothing was sent."""


class ProtocolError(AikidoError):
    """A rank sent invalid data or uses another version: check the installation."""


class RanksDifferError(AikidoError):
    """The states of ranks differ, or will differ: correct the training loop.

    Attributes:
        step: optimizer steps done before the state that differs; None: no difference
            yet.
        tensor: the first tensor or option that differs; None: not known.
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
    """A step of the loop does something that a replayed step leaves out.

    Always shown: filters of frameworks do not hide it.
    """
