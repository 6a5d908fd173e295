# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Computation of a rank for one stage: forwards, backwards, updates. No messages.

Note [weights of micro-batches]
The weight of a micro-batch is its number of rows divided by that of a full one. It is 1
except for remainders. Gradients and losses are multiplied by the weight, added up, and
divided by the sum of weights of the update. So an update is the mean over its rows,
however they were cut. A micro-batch without rows has weight 0: nothing is computed for
it, and an update that has only such micro-batches changes nothing. If the loss function
returns a sum and a count, gradients are those of the sum, and the count replaces the
weight as divisor on all stages (`_loss.py`).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from aikido_torch.errors import ConfigError
from aikido_torch.pipeline.runtime._loss import Loss, LossCheck, loss_of, told
from aikido_torch.pipeline.runtime._weights import Weights

__all__ = ["StageRun", "Update"]

Tensors = tuple[torch.Tensor, ...]
LossFunction = Callable[[Any, Any], torch.Tensor | tuple[torch.Tensor, Any]]
MakeOptimizer = Callable[[list[nn.Parameter]], torch.optim.Optimizer]


@dataclass
class _Batch:
    """A micro-batch between its forward and its backward."""

    inputs: Tensors
    weight: float
    version: int
    target: Any = None
    outputs: Tensors = ()  # on the last stage the loss alone
    # The parameters with which it was computed.
    leaves: list[nn.Parameter] = field(default_factory=list)
    # Random state of a forward that is computed again.
    random: "_RandomState | None" = None
    # Buffers that the forward changed, with their values before.
    buffers: "list[_Buffer]" = field(default_factory=list)
    incoming: Tensors = ()  # Gradients, between the two halves of a backward
    count: float | None = None  # divisor of its gradients, if not the weight

    @property
    def divisor(self) -> float:
        return self.weight if self.count is None else self.count


@dataclass
class Update:
    """Contribution of a rank to one update of a stage."""

    gradients: list[torch.Tensor | None]  # by parameter that needs a gradient
    weight: float = 0.0
    loss: float = 0.0


class StageRun:
    """One stage on one rank.

    Args:
        index: number of the stage.
        module: takes the result of the stage before, or a micro-batch of inputs.
        make_optimizer: gets the parameters that need gradients.
        loss_fn: loss function on the last stage; None on all others.
    """

    def __init__(
        self,
        index: int,
        module: nn.Module,
        *,
        make_optimizer: MakeOptimizer,
        loss_fn: LossFunction | None,
    ) -> None:
        self.index = index
        self.module = module
        self.weights = Weights(module)
        self._trainable = [i for i, p in enumerate(self.weights.own) if p.requires_grad]
        self.parameters = [self.weights.own[i] for i in self._trainable]
        self.optimizer = make_optimizer(self.parameters) if self.parameters else None
        self.device = next(
            (t.device for t in (*module.parameters(), *module.buffers())),
            torch.device("cpu"),
        )
        self._loss_fn = loss_fn
        self._loss_check = LossCheck(loss_fn)
        # True if losses have counts; None: not known yet.
        self._has_counts: bool | None = None
        self._batches: dict[int, _Batch] = {}
        self._update = self._new_update()
        # Sums of losses and their divisors, for this rank's micro-batches.
        self.losses: dict[int, torch.Tensor] = {}
        self.update_losses: list[tuple[float, float]] = []

    @property
    def is_last(self) -> bool:
        return self._loss_fn is not None

    # ---- computing ----

    def forward(
        self,
        micro_batch: int,
        version: int,
        inputs: Tensors,
        weight: float,
        *,
        target: Any = None,
        is_kept: bool = True,
    ) -> Tensors:
        """Computes a forward; returns the tensors for the next stage, if there is one.

        Args:
            micro_batch: number of the micro-batch.
            version: version of the weights to use.
            inputs: tensors; requires_grad is set if they need gradients.
            weight: weight of the micro-batch.
            target: targets, on the last stage.
            is_kept: False keeps only the inputs; `recompute` must precede the backward.
        """
        batch = _Batch(inputs, weight, version, target)
        self._batches[micro_batch] = batch
        if weight == 0:
            return ()
        if not is_kept:
            batch.random = _RandomState.now(self.device)
            buffers = _buffers_of(self.module)
        outputs, kept = self._computed(micro_batch, batch, is_first=True)
        if not is_kept:
            batch.buffers = [buffer for buffer in buffers if buffer.has_changed()]
        if self.is_last:
            self.losses[micro_batch] = Loss(kept[0], batch.count).mean
        if is_kept:
            batch.outputs = kept
        return outputs

    def recompute(self, micro_batch: int) -> None:
        """Computes the forward again, with the same weights, buffers and random
        numbers.
        """
        batch = self._batches[micro_batch]
        if batch.weight == 0:
            return
        assert batch.random is not None
        with batch.random.restored(), _same_buffers(self.module, batch.buffers):
            _, batch.outputs = self._computed(micro_batch, batch)

    def divisor_of(self, micro_batch: int) -> float:
        """Divisor of the micro-batch's gradients, applied after they are added up."""
        return self._batches[micro_batch].divisor

    def set_divisor(self, micro_batch: int, divisor: float) -> None:
        """Sets the divisor that the last stage has reported; call it before the
        backward.
        """
        self._batches[micro_batch].count = divisor

    def backward(self, micro_batch: int, gradients: Tensors) -> Tensors:
        """Computes a backward; returns the gradients for the stage before.

        Args:
            micro_batch: number of the micro-batch.
            gradients: of the outputs that need one; empty on the last stage.
        """
        batch = self._batches.pop(micro_batch)
        into_inputs = self._needing(batch)
        leaves = self._needed_leaves(batch)
        found = self._gradients(batch, gradients, [*into_inputs, *leaves])
        self._add(batch, micro_batch, found[len(into_inputs) :])
        return self._filled(into_inputs, found)

    def input_gradient(self, micro_batch: int, gradients: Tensors) -> Tensors:
        """First half of a backward; returns the gradients for the stage before."""
        batch = self._batches[micro_batch]
        into_inputs = self._needing(batch)
        batch.incoming = gradients
        found = self._gradients(batch, gradients, into_inputs, keep_graph=True)
        return self._filled(into_inputs, found)

    def weight_gradient(self, micro_batch: int) -> None:
        """Second half of a backward: the gradients of the parameters."""
        batch = self._batches.pop(micro_batch)
        found = self._gradients(batch, batch.incoming, self._needed_leaves(batch))
        self._add(batch, micro_batch, found)

    # ---- updates ----

    def take_update(self) -> Update:
        """Returns the gradients that were added up since the last call."""
        taken, self._update = self._update, self._new_update()
        return taken

    def step(self, version: int, update: Update) -> None:
        """Makes version `version` from the newest version and the gradients of all
        replicas.
        """
        self.weights.begin_step(version)
        if self.is_last:
            self.update_losses.append((update.loss, update.weight))
        if update.weight == 0 or self.optimizer is None:
            return
        for parameter, gradient in zip(self.parameters, update.gradients, strict=True):
            if gradient is not None:
                # Not in place: parameters may share one gradient tensor.
                parameter.grad = gradient / update.weight
        self.optimizer.step()
        for parameter in self.parameters:
            parameter.grad = None
        # An autocast region around all steps would reuse casts of the old weights.
        torch.clear_autocast_cache()

    def begin(self) -> None:
        """Prepares a run of the schedule.

        Raises:
            ConfigError: the parameters that need gradients are not those at
                construction.
        """
        needing = [i for i, p in enumerate(self.weights.own) if p.requires_grad]
        if needing != self._trainable:
            raise ConfigError(
                f"stage {self.index}: {len(needing)} parameters need gradients now; "
                f"there were {len(self._trainable)}, or others, when the pipeline was "
                "made. Call requires_grad_ before that, or make another pipeline."
            )
        self.losses.clear()
        self.update_losses.clear()

    def end(self) -> None:
        """Cleans up after a run, successful or not."""
        self.weights.settle()
        self._batches.clear()
        self._update = self._new_update()

    # ---- parts of them ----

    def _new_update(self) -> Update:
        self._is_own = [False] * len(self._trainable)
        return Update([None] * len(self._trainable))

    def _computed(
        self, micro_batch: int, batch: _Batch, *, is_first: bool = False
    ) -> tuple[Tensors, Tensors]:
        """The outputs for the next stage, and the tensors where backwards begin.

        Args:
            is_first: False for a forward that is computed again.
        """
        batch.leaves = self.weights.use(batch.version)
        with torch.enable_grad():
            returned = self.module(*self._given(batch))
            if self._loss_fn is None:
                outputs = self._outputs(returned)
                return outputs, outputs
            is_checked = is_first and self._loss_check.is_due()
            random = _RandomState.now(self.device) if is_checked else None
            value = self._loss_fn(returned, batch.target)
        loss = loss_of(value, self.index, micro_batch)
        self._check_count(loss, micro_batch)
        if random is not None and loss.count is None:
            self._loss_check.look(
                returned, batch.target, loss.root, same_random_numbers=random.restored
            )
        batch.count = loss.count
        return (), (loss.root,)

    def _check_count(self, loss: Loss, micro_batch: int) -> None:
        has_count = loss.count is not None
        if self._has_counts not in (None, has_count):
            now, before = ("a", "none") if has_count else ("no", "one")
            raise ConfigError(
                f"stage {self.index}, the last: loss_fn returned {now} count for "
                f"micro-batch {micro_batch}, and before {before}; return one always or "
                "never."
            )
        self._has_counts = has_count

    def _outputs(self, returned: Any) -> Tensors:
        outputs = (returned,) if isinstance(returned, torch.Tensor) else returned
        if not isinstance(outputs, tuple | list) or not all(
            isinstance(output, torch.Tensor) for output in outputs
        ):
            raise ConfigError(
                f"stage {self.index} returned {told(returned)}; a stage that is not "
                "the last returns a tensor or a tuple of tensors."
            )
        return tuple(outputs)

    def _given(self, batch: _Batch) -> Tensors:
        """The inputs in a form that a module may change in place.

        A leaf of autograd must not be changed. The inputs of a forward that is computed
        again must keep their values.
        """
        if batch.random is not None:
            return tuple(x.clone() for x in batch.inputs)
        return tuple(_Alias.apply(x) if x.requires_grad else x for x in batch.inputs)

    def _needing(self, batch: _Batch) -> list[torch.Tensor]:
        return [x for x in batch.inputs if x.requires_grad]

    def _needed_leaves(self, batch: _Batch) -> list[nn.Parameter]:
        return [batch.leaves[i] for i in self._trainable] if batch.leaves else []

    def _gradients(
        self,
        batch: _Batch,
        incoming: Tensors,
        of: Sequence[torch.Tensor],
        *,
        keep_graph: bool = False,
    ) -> list[torch.Tensor | None]:
        roots = [output for output in batch.outputs if output.requires_grad]
        if batch.weight == 0 or not roots or not of:
            return [None] * len(of)
        seeds: list[torch.Tensor | None] = list(incoming)
        if self.is_last:
            # A full micro-batch needs no scale, so its operations equal those of plain
            # torch.
            is_whole = batch.weight == 1 or batch.count is not None
            scale = None if is_whole else roots[0].new_tensor(batch.weight)
            seeds = [scale]
        # A backward may recompute parts of the forward, as torch.utils.checkpoint does.
        self.weights.use_again(batch.leaves)
        found = torch.autograd.grad(
            roots, of, seeds, retain_graph=keep_graph, allow_unused=True
        )
        return list(found)

    def _filled(
        self, inputs: list[torch.Tensor], found: list[torch.Tensor | None]
    ) -> Tensors:
        return tuple(
            torch.zeros_like(x) if g is None else g
            for x, g in zip(inputs, found[: len(inputs)], strict=True)
        )

    def _add(
        self, batch: _Batch, micro_batch: int, gradients: list[torch.Tensor | None]
    ) -> None:
        update = self._update
        update.weight += batch.divisor
        if self.is_last and batch.weight > 0 and batch.divisor > 0:
            update.loss += batch.divisor * float(self.losses[micro_batch])
        for i, gradient in enumerate(gradients):
            if gradient is None:
                continue
            before = update.gradients[i]
            if before is None:
                update.gradients[i] = gradient
            elif self._is_own[i]:
                before += gradient
            else:  # autograd may have returned the same tensor for other inputs too
                update.gradients[i] = before + gradient
                self._is_own[i] = True


class _Alias(torch.autograd.Function):
    """The same memory, but neither a leaf of autograd nor a view of one."""

    @staticmethod
    def forward(_: Any, x: torch.Tensor) -> torch.Tensor:
        return x.detach()

    @staticmethod
    def backward(_: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


@dataclass(frozen=True)
class _RandomState:
    """State of all random generators that a stage may use."""

    cpu: torch.Tensor
    device: torch.device
    on_device: torch.Tensor | None

    @classmethod
    def now(cls, device: torch.device) -> "_RandomState":
        on_device = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
        return cls(torch.get_rng_state(), device, on_device)

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Context with this random state; restores the present state afterwards."""
        before = _RandomState.now(self.device)
        self._set()
        try:
            yield
        finally:
            before._set()

    def _set(self) -> None:
        torch.set_rng_state(self.cpu)
        if self.on_device is not None:
            torch.cuda.set_rng_state(self.on_device, self.device)


@dataclass(frozen=True)
class _Buffer:
    """A buffer of a module, such as a running mean, and its present values."""

    owner: nn.Module
    name: str
    tensor: torch.Tensor
    version: int
    content: torch.Tensor

    def has_changed(self) -> bool:
        is_same = self.owner._buffers.get(self.name) is self.tensor
        return not is_same or self.tensor._version != self.version


def _buffers_of(module: nn.Module) -> list[_Buffer]:
    return [
        _Buffer(owner, name, buffer, buffer._version, buffer.clone())
        for owner in module.modules()
        for name, buffer in owner._buffers.items()
        if buffer is not None
    ]


@contextmanager
def _same_buffers(module: nn.Module, before: list[_Buffer]) -> Iterator[None]:
    """Context with the earlier buffers; changes made inside it are discarded."""
    now = _buffers_of(module)
    for buffer in (*now, *before):
        buffer.owner._buffers[buffer.name] = buffer.content
    try:
        yield
    finally:
        for buffer in now:
            buffer.owner._buffers[buffer.name] = buffer.tensor
