# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""DistributedDataParallel that goes on without late ranks, and brings them up to date.

```python
model = DistributedDataParallel(net)
handle = aikido_torch.ddp.register(model, policy=SkipStraggler(), optimizer=optimizer)
while step < steps:
    step += handle.catch_up()
    ...
```

A rank that is late once has missed a step; if it went on computing that step and the
next from where it was, it would be late for ever and all its work thrown away.
`catch_up()` applies the steps that the others have committed meanwhile: the optimizer
runs on the committed gradients, without forward or backward, and the rank is
bit-identical with the others again.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket
from torch.nn.parallel import DistributedDataParallel

from aikido_torch import _C
from aikido_torch._backend import backend_of
from aikido_torch.errors import ConfigError
from aikido_torch.straggler import Policy, SkipStraggler, WaitAll

__all__ = ["Handle", "register"]

_GROUP_TIMEOUT = timedelta(milliseconds=-1)
_MEAN = dist.ReduceOp(dist.ReduceOp.AVG)
# DDP makes its final buckets at the second forward; nothing is skipped before.
_STRICT_STEPS = 2


@dataclass(frozen=True)
class _Slice:
    """Where the gradient of one parameter lies in its bucket."""

    parameter: torch.Tensor
    size: torch.Size
    stride: tuple[int, ...]
    offset: int


@dataclass(frozen=True)
class _Bucket:
    """One bucket as DDP laid it out, with memory for a result to replay."""

    scratch: torch.Tensor
    slices: tuple[_Slice, ...]


class Handle:
    """What `register` returns. For the thread that trains.

    Attributes:
        outcomes: of the bucket operations, oldest first, the last 100,000.
        steps: optimizer steps that have passed through this rank's hook or `catch_up`.
        replayed_steps: those of them that `catch_up` applied.
        skipped_steps: those in which (part of) this rank's own gradient was left out.
    """

    def __init__(
        self,
        model: DistributedDataParallel,
        policy: Policy,
        optimizer: torch.optim.Optimizer,
        after_step: Callable[[], None] | None,
    ) -> None:
        self.steps = 0
        self.replayed_steps = 0
        self.skipped_steps = 0
        self._outcomes: deque[_C.Outcome] = deque(maxlen=100_000)
        self._backend = backend_of(model.process_group)
        self._rank = dist.get_rank(model.process_group)
        self._policy = policy.native()
        self._wait_all = WaitAll().native()
        self._optimizer = optimizer
        self._after_step = after_step
        self._buckets: dict[int, _Bucket] = {}
        self._running: list[tuple[int, _C.AikidoWork]] = []  # with their step
        self._last_skipped = -1

    @property
    def outcomes(self) -> deque[_C.Outcome]:
        """How the bucket operations ended; see the class."""
        self._collect()
        return self._outcomes

    def catch_up(self) -> int:
        """Applies every step that is committed but was not taken part in here.

        Call it at the top of the training loop and pass over as many batches as it
        returns. Parameters and optimizer are then those of the other ranks, bit for
        bit. Gradients are left as they were.

        The steps applied have passed for this rank: what your loop does in every step
        besides, such as an all_reduce of the loss for a log, has to be done for them
        too, or the ranks end up in different calls. Better do it every so many steps,
        behind a barrier.

        Returns:
            Number of optimizer steps applied; 0 for a rank that is up to date.
        """
        applied = 0
        while self._is_laid_out() and self._backend.committed_ahead >= len(
            self._buckets
        ):
            self._replay()
            applied += 1
        return applied

    def _is_laid_out(self) -> bool:
        return self.steps >= _STRICT_STEPS

    def _replay(self) -> None:
        # The results are here, so these calls send nothing and return at once.
        for index in sorted(self._buckets):
            bucket = self._buckets[index]
            self._start(bucket.scratch, self._policy).wait()
        slices = [(s, b.scratch) for b in self._buckets.values() for s in b.slices]
        own = [s.parameter.grad for s, _ in slices]
        for s, scratch in slices:
            s.parameter.grad = scratch.as_strided(s.size, s.stride, s.offset)
        self._optimizer.step()
        for (s, _), grad in zip(slices, own, strict=True):
            s.parameter.grad = grad
        self._end_step()
        self.replayed_steps += 1
        if self._after_step is not None:
            self._after_step()

    def _start(self, tensor: torch.Tensor, policy: _C.PolicyOptions) -> _C.AikidoWork:
        work = self._backend.all_reduce(tensor, _MEAN, policy, 0, _GROUP_TIMEOUT)
        self._running.append((self.steps, work))
        return work

    def _hook(
        self, _: object, bucket: GradBucket
    ) -> torch.futures.Future[torch.Tensor]:
        if bucket.index() == 0:
            self._collect()
        strict = not self._is_laid_out()
        if strict:
            self._buckets[bucket.index()] = _lay_out(bucket)
        work = self._start(bucket.buffer(), self._wait_all if strict else self._policy)
        if bucket.is_last():
            if strict:
                # Fewer buckets than before the rebuild.
                for index in [i for i in self._buckets if i > bucket.index()]:
                    del self._buckets[index]
            self._end_step(collect=False)
        # DDP takes the value of a Python callback only.
        future: torch.futures.Future[torch.Tensor] = work.get_future().then(_only)
        return future

    def _end_step(self, collect: bool = True) -> None:
        self.steps += 1
        if collect:
            self._collect()

    def _collect(self) -> None:
        left = []
        for step, work in self._running:
            if not work.is_completed():
                left.append((step, work))
                continue
            outcome = work.outcome()
            if outcome is None:
                continue
            self._outcomes.append(outcome)
            if self._rank in outcome.skipped and step > self._last_skipped:
                self._last_skipped = step
                self.skipped_steps += 1
        self._running = left


def _only(future: torch.futures.Future[list[torch.Tensor]]) -> torch.Tensor:
    return future.value()[0]


def _lay_out(bucket: GradBucket) -> _Bucket:
    buffer = bucket.buffer()
    slices = tuple(
        _Slice(
            parameter=parameter,
            size=gradient.size(),
            stride=gradient.stride(),
            offset=int(gradient.storage_offset() - buffer.storage_offset()),
        )
        for parameter, gradient in zip(
            bucket.parameters(), bucket.gradients(), strict=True
        )
    )
    return _Bucket(scratch=torch.empty_like(buffer), slices=slices)


def register(
    model: DistributedDataParallel,
    *,
    optimizer: torch.optim.Optimizer,
    policy: Policy | None = None,
    after_step: Callable[[], None] | None = None,
) -> Handle:
    """Installs the communication hook that averages gradients under `policy`.

    Call it once, right after wrapping the model, on every rank with the same policy.
    The first two steps are strict: DDP settles its buckets in them.

    Args:
        model: wrapped over an aikido group.
        optimizer: the one that the loop steps; `catch_up` steps it too.
        policy: None is `SkipStraggler()`.
        after_step: called after each step that `catch_up` applies, as the loop would
            after its own; for learning rate schedulers.

    Raises:
        ConfigError: the model makes DDP run strict collectives in every step, for which
            all ranks would wait again; the text says what to change.
    """
    if not isinstance(model, DistributedDataParallel):
        raise ConfigError(
            f"model is a {type(model).__name__}; wrap it in DistributedDataParallel "
            "first."
        )
    if model.find_unused_parameters and not model.static_graph:
        raise ConfigError(
            "find_unused_parameters=True makes DDP all-reduce a map of used parameters "
            "in every step, for which all ranks wait; use False, or static_graph=True."
        )
    if model.broadcast_buffers and len(list(model.module.buffers())) > 0:
        names = [name for name, _ in model.module.named_buffers()][:3]
        raise ConfigError(
            f"The model has buffers ({', '.join(names)}, ...) which DDP broadcasts in "
            "every forward, for which all ranks wait; wrap it with "
            "broadcast_buffers=False."
        )
    backend_of(model.process_group)
    stepped = {id(p) for g in optimizer.param_groups for p in g["params"]}
    left_out = [
        name
        for name, p in model.module.named_parameters()
        if p.requires_grad and id(p) not in stepped
    ]
    if left_out:
        raise ConfigError(
            f"The optimizer does not step {len(left_out)} parameters of the model "
            f"({', '.join(left_out[:3])}, ...), so catch_up could not bring them up to "
            "date; give it all parameters that require gradients."
        )
    handle = Handle(model, policy or SkipStraggler(), optimizer, after_step)
    model.register_comm_hook(None, handle._hook)
    return handle
