# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Gradients of some parameters in one piece of memory, which is reduced as a whole.

Behind the gradients lies a number for each parameter: how much of the ranks had a
gradient for it. Where it is 0, nobody had, and the optimizer must not touch the
parameter: a gradient of zeros would make it decay.
"""

from collections.abc import Sequence

import torch

from aikido_torch.errors import ConfigError

__all__ = ["FlatBucket"]


class FlatBucket:
    """One bucket. Not for two threads at a time.

    Args:
        names: of the parameters, for sentences.
        parameters: of one dtype, on one device.
        num_signals: so many numbers more are reduced with it, 0 after `clear`.

    Attributes:
        buffer: what is reduced.
        signals: the extra numbers.
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
        self._had = self.buffer[total : total + len(sizes)]
        self.signals = self.buffer[total + len(sizes) :]
        self._places = {id(p): i for i, p in enumerate(parameters)}
        pieces = torch.split(self.buffer[:total], sizes)
        self._views = [_view(x, p) for x, p in zip(pieces, parameters, strict=True)]
        # By parameter: whether there was a gradient; None: nobody knows yet.
        self._taken: list[bool | None] = [None] * len(sizes)
        self._version = self.buffer._version  # after the last write of ours
        self._is_released = False

    @property
    def is_full(self) -> bool:
        return None not in self._taken

    def has(self, parameter: torch.Tensor) -> bool:
        """Whether its gradient was taken since `clear`."""
        return self._taken[self._places[id(parameter)]] is not None

    def take(self, parameter: torch.Tensor, scale: float) -> None:
        """Moves its gradient here, times `scale`; `parameter.grad` shows it here.

        Raises:
            ConfigError: somebody wrote to what was taken before.
        """
        self._check_unwritten()
        place = self._places[id(parameter)]
        view, gradient = self._views[place], parameter.grad
        assert gradient is not None
        with torch.no_grad():
            torch.mul(gradient, scale, out=view)
            self._had[place] = 1
        parameter.grad = view
        self._taken[place] = True
        self._version = self.buffer._version

    def complete(self, scale: float) -> None:
        """Those that were not taken: what is in `.grad` all the same, else zeros."""
        for place, parameter in enumerate(self.parameters):
            if self._taken[place] is not None:
                continue
            if parameter.grad is not None:
                self.take(parameter, scale)
                continue
            with torch.no_grad():
                self._views[place].zero_()
                self._had[place] = 0
            self._taken[place] = False
            self._version = self.buffer._version

    def fill(self, scale: float) -> None:
        """Copies what is in `.grad` of all parameters, times `scale`, or zeros.

        `.grad` stays what it is. Nobody checks what is written to it meanwhile.
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
                self._had.fill_(1)
            else:
                self._had.copy_(torch.tensor(self._taken))

    def check_filled(self) -> None:
        """Raises ConfigError if a `.grad` has changed since `fill`."""
        for name, parameter, (gradient, version), view in zip(
            self.names, self.parameters, self._filled, self._views, strict=True
        ):
            now = parameter.grad
            # One that shows this memory has the sum by now.
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
        """For another `fill`; `.grad` stays what it is, here or elsewhere."""
        self._filled = []
        self._taken = [None] * len(self.parameters)
        if self.signals.numel():
            with torch.no_grad():
                self.signals.zero_()
        self._version = self.buffer._version

    def signal(self, number: int) -> None:
        """Sets that signal, on this rank."""
        with torch.no_grad():
            self.signals[number] = 1
        self._version = self.buffer._version

    def release(self) -> None:
        """The sums are here: `.grad` shows them, and may be changed from now on."""
        if self._is_released:
            return
        self.check_untouched()
        self._is_released = True
        for parameter, result in zip(self.parameters, self._results(), strict=True):
            parameter.grad = result

    def detach(self) -> None:
        """Takes the gradients off their parameters, for `attach`."""
        if not self._is_released:
            self.check_untouched()
        self._kept = [p.grad for p in self.parameters]
        for parameter in self.parameters:
            parameter.grad = None

    def attach(self) -> list[torch.Tensor]:
        """Gives the sums to the parameters that get a step; returns these."""
        found = self._kept if self._is_released else self._results()
        stepped = []
        for parameter, result in zip(self.parameters, found, strict=True):
            if result is not None:
                parameter.grad = result
                stepped.append(parameter)
        return stepped

    def clear(self) -> None:
        """For the next step; without any gradients."""
        for parameter in self.parameters:
            parameter.grad = None
        self.restart()

    def restart(self) -> None:
        """For another backward; `.grad` keeps what was released, outside of here."""
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
        """No `.grad` is in this memory any more; one that is no sum yet is None.

        Args:
            has_sums: what is in this memory are sums, released or not.
        """
        for parameter, view in zip(self.parameters, self._views, strict=True):
            if parameter.grad is view and not (self._is_released or has_sums):
                parameter.grad = None
        self.restart()

    def check_untouched(self) -> None:
        """Raises ConfigError if somebody wrote to a gradient or replaced it."""
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
        """None for those that no rank had."""
        had = self._had.tolist()
        return [v if h else None for v, h in zip(self._views, had, strict=True)]


def _touched(what: str) -> ConfigError:
    return ConfigError(
        f"OverlappedDataParallel: {what} between backward and step, while it was "
        "being summed over the ranks; call wait_for_gradients() of the model before "
        "(its clip_grad_norm_ does), or leave gradients alone."
    )


def _view(piece: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """In the parameter's own layout if that is dense, as gradients have it."""
    for layout in (torch.channels_last, torch.channels_last_3d):
        if parameter.dim() == (4 if layout is torch.channels_last else 5):
            is_dense = parameter.is_contiguous(memory_format=layout)
            if is_dense and not parameter.is_contiguous():
                return piece.as_strided(parameter.size(), parameter.stride())
    return piece.view(parameter.size())
