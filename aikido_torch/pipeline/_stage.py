# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""What a rank computes for one stage: forwards, backwards, updates. No messages.

Note [weights of micro-batches]
A micro-batch has a weight, its rows as a share of a full one: 1 but for remainders.
Gradients and losses are added up times that and divided by the sum of weights of the
update, so an update is the mean over its rows, however they were cut. One without rows
has weight 0: nothing is computed for it, and an update of such alone changes nothing.
Where the loss function returns a sum and a count, gradients are those of the sum, and
the count is the divisor in place of the weight, on all stages (`_loss.py`).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from aikido_torch.errors import ConfigError
from aikido_torch.pipeline._loss import Loss, LossCheck, loss_of, told
from aikido_torch.pipeline._weights import Weights

__all__ = ["StageRun", "Update"]

Tensors = tuple[torch.Tensor, ...]
LossFunction = Callable[[Any, Any], torch.Tensor | tuple[torch.Tensor, Any]]
MakeOptimizer = Callable[[list[nn.Parameter]], torch.optim.Optimizer]


@dataclass
class _Batch:
    """A micro-batch from its forward to its backward."""

    inputs: Tensors
    weight: float
    version: int
    target: Any = None
    outputs: Tensors = ()  # or the loss alone, on the last stage
    leaves: list[nn.Parameter] = field(default_factory=list)  # of all parameters
    random: "_RandomState | None" = None  # of a forward that is done again
    buffers: "list[_Buffer]" = field(default_factory=list)  # those it changed, before
    incoming: Tensors = ()  # gradients, between both halves of a backward
    count: float | None = None  # what its gradients are divided by, if not the weight

    @property
    def divisor(self) -> float:
        return self.weight if self.count is None else self.count


@dataclass
class Update:
    """What a rank gives to one update of a stage."""

    gradients: list[torch.Tensor | None]  # by parameter that needs one
    weight: float = 0.0
    loss: float = 0.0


class StageRun:
    """One stage on one rank.

    Args:
        index: its number.
        module: takes what the stage before returns, or a micro-batch of inputs.
        make_optimizer: gets the parameters that need gradients.
        loss_fn: of the last stage; None on all others.
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
        self._has_counts: bool | None = None  # whether losses come with counts
        self._batches: dict[int, _Batch] = {}
        self._update = self._new_update()
        # Sums and what they were divided by, of this rank's micro-batches.
        self.losses: dict[int, torch.Tensor] = {}
        self.update_losses: list[tuple[float, float]] = []

    @property
    def is_last(self) -> bool:
        return self._loss_fn is not None

    # Computing.

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
        """Returns what goes to the next stage, or nothing.

        Args:
            inputs: those that need gradients say so.
            is_kept: False keeps only the inputs; `recompute` comes before the backward.
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
        """The forward again, with the same weights, buffers and random numbers."""
        batch = self._batches[micro_batch]
        if batch.weight == 0:
            return
        assert batch.random is not None
        with batch.random.restored(), _same_buffers(self.module, batch.buffers):
            _, batch.outputs = self._computed(micro_batch, batch)

    def divisor_of(self, micro_batch: int) -> float:
        """What the gradients of a micro-batch are divided by, once added up."""
        return self._batches[micro_batch].divisor

    def set_divisor(self, micro_batch: int, divisor: float) -> None:
        """As the last stage has it; before the backward."""
        self._batches[micro_batch].count = divisor

    def backward(self, micro_batch: int, gradients: Tensors) -> Tensors:
        """Returns what goes to the stage before.

        Args:
            gradients: of the outputs that need one; of the last stage none.
        """
        batch = self._batches.pop(micro_batch)
        into_inputs = self._needing(batch)
        leaves = self._needed_leaves(batch)
        found = self._gradients(batch, gradients, [*into_inputs, *leaves])
        self._add(batch, micro_batch, found[len(into_inputs) :])
        return self._filled(into_inputs, found)

    def input_gradient(self, micro_batch: int, gradients: Tensors) -> Tensors:
        """The first half of a backward: what goes to the stage before."""
        batch = self._batches[micro_batch]
        into_inputs = self._needing(batch)
        batch.incoming = gradients
        found = self._gradients(batch, gradients, into_inputs, keep_graph=True)
        return self._filled(into_inputs, found)

    def weight_gradient(self, micro_batch: int) -> None:
        """The second half."""
        batch = self._batches.pop(micro_batch)
        found = self._gradients(batch, batch.incoming, self._needed_leaves(batch))
        self._add(batch, micro_batch, found)

    # Updates.

    def take_update(self) -> Update:
        """What was added up since the last time."""
        taken, self._update = self._update, self._new_update()
        return taken

    def step(self, version: int, update: Update) -> None:
        """Makes that version out of the newest and the gradients of all replicas."""
        self.weights.begin_step(version)
        if self.is_last:
            self.update_losses.append((update.loss, update.weight))
        if update.weight == 0 or self.optimizer is None:
            return
        for parameter, gradient in zip(self.parameters, update.gradients, strict=True):
            if gradient is not None:
                # Never in place: parameters may share one.
                parameter.grad = gradient / update.weight
        self.optimizer.step()
        for parameter in self.parameters:
            parameter.grad = None
        # Autocast around all steps would go on with what it made of the weights before.
        torch.clear_autocast_cache()

    def begin(self) -> None:
        """Before a schedule is carried out.

        Raises:
            ConfigError: parameters need gradients now that did not, or the opposite.
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
        """After it, whether it came to its end or not."""
        self.weights.settle()
        self._batches.clear()
        self._update = self._new_update()

    # Parts of them.

    def _new_update(self) -> Update:
        self._is_own = [False] * len(self._trainable)
        return Update([None] * len(self._trainable))

    def _computed(
        self, micro_batch: int, batch: _Batch, *, is_first: bool = False
    ) -> tuple[Tensors, Tensors]:
        """What goes to the next stage, and what backwards begin with.

        Args:
            is_first: False for a forward that is done again.
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
        """The inputs, as a module may also change them in place.

        A leaf may not be changed. And what a forward that is done again begins with
        must be what it was.
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
            # Nothing is added to what torch does by itself for a full micro-batch.
            is_whole = batch.weight == 1 or batch.count is not None
            scale = None if is_whole else roots[0].new_tensor(batch.weight)
            seeds = [scale]
        # A backward may compute parts of the forward again: torch.utils.checkpoint.
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
            else:  # autograd may have given the same tensor to others, too
                update.gradients[i] = before + gradient
                self._is_own[i] = True


class _Alias(torch.autograd.Function):
    """The same memory, but no leaf of autograd, nor a view of one."""

    @staticmethod
    def forward(_: Any, x: torch.Tensor) -> torch.Tensor:
        return x.detach()

    @staticmethod
    def backward(_: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


@dataclass(frozen=True)
class _RandomState:
    """Of all generators that a stage may use."""

    cpu: torch.Tensor
    device: torch.device
    on_device: torch.Tensor | None

    @classmethod
    def now(cls, device: torch.device) -> "_RandomState":
        on_device = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
        return cls(torch.get_rng_state(), device, on_device)

    @contextmanager
    def restored(self) -> Iterator[None]:
        """For a while."""
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
    """One of a module, such as a running mean, and what is in it now."""

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
    """As before a forward; what is written to them meanwhile is forgotten."""
    now = _buffers_of(module)
    for buffer in (*now, *before):
        buffer.owner._buffers[buffer.name] = buffer.content
    try:
        yield
    finally:
        for buffer in now:
            buffer.owner._buffers[buffer.name] = buffer.tensor
