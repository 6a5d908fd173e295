# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Gradients of several parameters in one tensor, which is reduced as a whole.

After the gradients, the tensor has one number for each parameter: the share of the
ranks that had a gradient for it. If it is 0, no rank had a gradient, and the optimizer
must not touch the parameter: a gradient of zeros would make the parameter decay.
"""

from collections.abc import Sequence

import torch

from aikido_torch.errors import ConfigError

__all__ = ["FlatBucket"]


class FlatBucket:
    """One flat bucket. Not thread-safe.

    Args:
        names: names of the parameters, for error texts.
        parameters: all of one dtype, on one device.
        num_signals: count of additional numbers that are reduced too; 0 after `clear`.

    Attributes:
        buffer: the tensor that is reduced.
        signals: the additional numbers.
    """

    def __init__(
        self,
        names: Sequence[str],
        parameters: Sequence[torch.Tensor],
        *,
        num_signals: int = 0,
    ) -> None:
        self.names = tuple(names)
        self.parameters = tuple(parameters)
        self._kept: list[torch.Tensor | None] = []
        self._filled: list[tuple[torch.Tensor | None, int]] = []
        first = parameters[0]
        sizes = [p.numel() for p in parameters]
        total = sum(sizes)
        self.buffer = torch.zeros(
            total + len(sizes) + num_signals, dtype=first.dtype, device=first.device
        )
        self._gradient_counts = self.buffer[total : total + len(sizes)]
        self.signals = self.buffer[total + len(sizes) :]
        self._places = {id(p): i for i, p in enumerate(parameters)}
        pieces = torch.split(self.buffer[:total], sizes)
        self._views = [_view(x, p) for x, p in zip(pieces, parameters, strict=True)]
        # By parameter: whether this rank has a gradient; None: not known yet.
        self._taken: list[bool | None] = [None] * len(sizes)
        # Version after the last write by this class.
        self._version = self.buffer._version
        self._is_released = False

    @property
    def is_full(self) -> bool:
        return None not in self._taken

    def has(self, parameter: torch.Tensor) -> bool:
        """True if the gradient was taken, or is known to be missing, since `clear`."""
        return self._taken[self._places[id(parameter)]] is not None

    def take(self, parameter: torch.Tensor, scale: float) -> None:
        """Moves the gradient times `scale` into the buffer; `parameter.grad` becomes a
        view.

        Raises:
            ConfigError: other code wrote to a gradient that was taken before.
        """
        self._check_unwritten()
        place = self._places[id(parameter)]
        view, gradient = self._views[place], parameter.grad
        assert gradient is not None
        with torch.no_grad():
            torch.mul(gradient, scale, out=view)
            self._gradient_counts[place] = 1
        parameter.grad = view
        self._taken[place] = True
        self._version = self.buffer._version

    def complete(self, scale: float) -> None:
        """Takes the remaining gradients from `.grad`, and writes zeros where there is
        none.
        """
        for place, parameter in enumerate(self.parameters):
            if self._taken[place] is not None:
                continue
            if parameter.grad is not None:
                self.take(parameter, scale)
                continue
            with torch.no_grad():
                self._views[place].zero_()
                self._gradient_counts[place] = 0
            self._taken[place] = False
            self._version = self.buffer._version

    def fill(self, scale: float) -> None:
        """Copies the `.grad` of all parameters times `scale` into the buffer, or zeros.

        `.grad` does not change. Writes to it are found by `check_filled` only.
        """
        gradients = [p.grad for p in self.parameters]
        self._filled = [(g, -1 if g is None else g._version) for g in gradients]
        with torch.no_grad():
            for place, (view, gradient) in enumerate(
                zip(self._views, gradients, strict=True)
            ):
                if gradient is None:
                    view.zero_()
                else:
                    torch.mul(gradient, scale, out=view)
                self._taken[place] = gradient is not None
            if False not in self._taken:
                self._gradient_counts.fill_(1)
            else:
                self._gradient_counts.copy_(torch.tensor(self._taken))

    def check_filled(self) -> None:
        """Raises ConfigError if a `.grad` has changed since `fill`."""
        for name, parameter, (gradient, version), view in zip(
            self.names, self.parameters, self._filled, self._views, strict=True
        ):
            now = parameter.grad
            # If `.grad` is a view of this buffer, it has the sum by now.
            if now is not gradient or (
                now is not None and now is not view and now._version != version
            ):
                raise ConfigError(
                    f"OverlappedDataParallel: the gradient of {name} has changed in "
                    "the backward after it was there, while it was being summed; a "
                    "parameter may get its gradient once in a backward, which is not "
                    "so if segments under checkpoint(use_reentrant=True) share it."
                )

    def empty(self) -> None:
        """Makes the bucket ready for another `fill`; `.grad` does not change."""
        self._filled = []
        self._taken = [None] * len(self.parameters)
        if self.signals.numel():
            with torch.no_grad():
                self.signals.zero_()
        self._version = self.buffer._version

    def signal(self, number: int) -> None:
        """Sets the signal with this number, on this rank."""
        with torch.no_grad():
            self.signals[number] = 1
        self._version = self.buffer._version

    def release(self) -> None:
        """Makes `.grad` show the sums, which are complete. From now on they may be
        changed.
        """
        if self._is_released:
            return
        self.check_untouched()
        self._is_released = True
        for parameter, result in zip(self.parameters, self._results(), strict=True):
            parameter.grad = result

    def detach(self) -> None:
        """Takes the gradients off their parameters, until `attach`."""
        if not self._is_released:
            self.check_untouched()
        self._kept = [p.grad for p in self.parameters]
        for parameter in self.parameters:
            parameter.grad = None

    def attach(self) -> list[torch.Tensor]:
        """Gives the sums to the parameters that get a step, and returns these
        parameters.
        """
        found = self._kept if self._is_released else self._results()
        stepped = []
        for parameter, result in zip(self.parameters, found, strict=True):
            if result is not None:
                parameter.grad = result
                stepped.append(parameter)
        return stepped

    def clear(self) -> None:
        """Drops all gradients, for the next step."""
        for parameter in self.parameters:
            parameter.grad = None
        self.restart()

    def restart(self) -> None:
        """Makes the bucket ready for another backward; released gradients move out of
        it.
        """
        for parameter, view in zip(self.parameters, self._views, strict=True):
            if parameter.grad is view:
                parameter.grad = view.clone()
        self._taken = [None] * len(self.parameters)
        self._kept = []
        self._is_released = False
        with torch.no_grad():
            self.signals.zero_()
        self._version = self.buffer._version

    def let_go(self, *, has_sums: bool = False) -> None:
        """Removes all views of the buffer from `.grad`.

        A gradient that is not summed yet becomes None; a sum is copied.

        Args:
            has_sums: True if the buffer has the sums, released or not.
        """
        for parameter, view in zip(self.parameters, self._views, strict=True):
            if parameter.grad is view and not (self._is_released or has_sums):
                parameter.grad = None
        self.restart()

    def check_untouched(self) -> None:
        """Raises ConfigError if other code wrote to a gradient or replaced it."""
        for name, parameter, view, was_taken in zip(
            self.names, self.parameters, self._views, self._taken, strict=True
        ):
            if was_taken is not None:
                wanted = view if was_taken else None
                if parameter.grad is not wanted:
                    raise _touched(f"the gradient of {name} was replaced or dropped")
        self._check_unwritten()

    def _check_unwritten(self) -> None:
        if self.buffer._version != self._version:
            raise _touched(f"a gradient of {', '.join(self.names[:3])} was changed")

    def _results(self) -> list[torch.Tensor | None]:
        """The sums by parameter; None if no rank had a gradient."""
        counts = self._gradient_counts.tolist()
        return [v if n else None for v, n in zip(self._views, counts, strict=True)]


def _touched(what: str) -> ConfigError:
    return ConfigError(
        f"OverlappedDataParallel: {what} between backward and step, while it was "
        "being summed over the ranks; call wait_for_gradients() of the model before "
        "(its clip_grad_norm_ does), or leave gradients alone."
    )


def _view(piece: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """A view in the parameter's layout if that is dense, as gradients have it."""
    for layout in (torch.channels_last, torch.channels_last_3d):
        if parameter.dim() == (4 if layout is torch.channels_last else 5):
            is_dense = parameter.is_contiguous(memory_format=layout)
            if is_dense and not parameter.is_contiguous():
                return piece.as_strided(parameter.size(), parameter.stride())
    return piece.view(parameter.size())
