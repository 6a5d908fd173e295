# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Late contributions that wait for the next call of the same tensor."""

import torch

from aikido_torch import _C
from aikido_torch.errors import AikidoError, ConfigError

__all__ = ["Carry"]


class Carry:
    """Carries a skipped contribution into the next call of the same tensor.

    ```python
    carry = Carry()  # one for each tensor that is reduced again and again
    for step in range(steps):
        aikido_torch.all_reduce(gradient(step), policy=policy, carry=carry)
    ```

    A call with a policy that skips may end without this rank, or without a part of its
    contribution, because each shard has a mask of its own. The skipped part is added,
    element by element, to this rank's contribution to the next call. If that call is
    late as well, the part is carried again. Each value counts once, or is still
    pending; it never counts twice. The contribution to a failed call is dropped, since
    other ranks may have counted it. Values that are not finite are dropped too, because
    they would spoil the next call.

    A Carry needs as much memory as the tensor, and a copy of it in every call. For one
    thread, and for one call at a time.
    """

    def __init__(self) -> None:
        # Contribution to the last call; after its end, the pending part of it.
        self._buffer: torch.Tensor | None = None
        self._work: _C.AikidoWork | None = None
        self._rank = 0
        self._scale = 1.0
        self._is_pending = False

    @property
    def pending(self) -> torch.Tensor | None:
        """Values that the next call gets in addition; read-only. None: nothing.

        Raises:
            ConfigError: the last call has not ended.
        """
        self._settle()
        return self._buffer if self._is_pending else None

    def drop(self) -> None:
        """Drops the pending values, and frees their memory."""
        self._buffer = self._work = None
        self._is_pending = False

    def add_to(self, tensor: torch.Tensor, scale: float = 1.0) -> bool:
        """Adds the pending values to `tensor`, the next contribution.

        Call `watch` afterwards; without it nothing of `tensor` is carried.

        Args:
            tensor: contiguous, with the shape, dtype and device of the last tensor.
            scale: factor in the values of `tensor`, such as the scale of a GradScaler.
                The pending values are brought to this scale.

        Returns:
            True if anything was added.

        Raises:
            ConfigError: the last call has not ended, or the tensor does not fit.
        """
        self._settle()
        tensor = tensor.detach()
        if not tensor.is_contiguous():
            raise ConfigError(
                f"Carry: tensor has shape {list(tensor.shape)} and strides "
                f"{list(tensor.stride())}; only contiguous tensors are carried."
            )
        was_pending = self._is_pending
        buffer = self._fitting(tensor)
        if was_pending:
            if scale != self._scale:
                buffer.mul_(scale / self._scale)
            tensor.add_(buffer)
        buffer.copy_(tensor)
        self._scale = scale
        self._is_pending = False
        return was_pending

    def watch(self, work: _C.AikidoWork, rank: int) -> None:
        """`work` is the call that got the tensor, `rank` this rank's place in it."""
        self._work, self._rank = work, rank

    def _fitting(self, tensor: torch.Tensor) -> torch.Tensor:
        own = self._buffer
        if own is not None and _kind(own) == _kind(tensor):
            return own
        if own is not None and self._is_pending:
            raise ConfigError(
                f"Carry: tensor is {_kind(tensor)} but what is pending is "
                f"{_kind(own)}; keep one Carry for each tensor, or drop() it first."
            )
        self._buffer = torch.empty_like(tensor)
        return self._buffer

    def _settle(self) -> None:
        work, buffer = self._work, self._buffer
        if work is None or buffer is None:
            return
        if not work.is_completed():
            raise ConfigError(
                "Carry: the last call with it has not ended, so what it left out is "
                "not known yet; wait() for its work first."
            )
        self._work = None
        try:
            outcome = work.outcome()
        except AikidoError:
            return
        if outcome is None or self._rank not in outcome.skipped:
            return
        flat = buffer.view(-1)
        for shard in outcome.shards:
            part = flat.narrow(0, shard.first_element, shard.num_elements)
            if self._rank in shard.contributors:
                part.zero_()
            elif not bool(part.isfinite().all()):
                return
        self._is_pending = True


def _kind(tensor: torch.Tensor) -> str:
    return f"{tensor.dtype} {list(tensor.shape)} on {tensor.device}"
