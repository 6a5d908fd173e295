# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Execution of one rank's part of a schedule; csrc/pipeline/schedule.h has the rules.

`Executor.run` is a generator: it yields each operation that it has to wait for, and the
caller decides how to wait. So the same code runs on real ranks, and for all ranks of a
pipeline in one thread, in any order (tests/python/harness/pipelines.py).

Note [receives are posted early]
A receive that is posted before its message arrives is filled while the rank computes.
So the next `AHEAD` receives of the list are posted before their turn. The size of a
message is known as soon as its promise is known (`_packing.py`). The instruction that
needs the content of a message waits for it.

Note [promises are sent once]
The promise of a stage precedes the first message to a rank, with a tag of its own for
each micro-batch. A stage that has computed nothing yet, because its micro-batches had
no rows, has no promise. Then the promise message says only that there are no rows, and
no gradient is sent back for it.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import torch

from aikido_torch import _C, _tags
from aikido_torch.pipeline.runtime._channel import Channel, Pending
from aikido_torch.pipeline.runtime._observe import Observer
from aikido_torch.pipeline.runtime._packing import MESSAGE_BYTES, Promise
from aikido_torch.pipeline.runtime._stage import StageRun, Tensors
from aikido_torch.pipeline.runtime._sum import Sum
from aikido_torch.pipeline.runtime._tell import Teller

__all__ = ["AHEAD", "Executor", "Feed", "Program", "Receives", "Values"]

AHEAD = 4  # number of receives that are posted before their turn

# Kinds of messages of one micro-batch of one stage.
_ACTIVATION, _GRADIENT, _PROMISE, _MORE_ACTIVATION, _MORE_GRADIENT, _NUM_KINDS = range(
    6
)


Key = tuple[int, int]  # stage and micro-batch, or stage and rank


class Feed(Protocol):
    """Source of the data of one run."""

    def inputs(self, micro_batch: int) -> tuple[Tensors, float]:
        """Inputs of the first stage, and the weight of the micro-batch."""

    def target(self, micro_batch: int, weight: float) -> Any:
        """Targets for the last stage."""


class Step(NamedTuple):
    """An instruction as a Python tuple, which is faster to read than the native
    object.
    """

    kind: str
    stage: int
    micro_batch: int
    version: int
    peer: int
    text: str
    key: tuple[int, int]  # stage and micro-batch


class Program:
    """The instructions of one rank, prepared for execution.

    Args:
        instructions: of this rank, in order.
        num_micro_batches: micro-batches of a run.
        stages: for each stage the ranks that have it.
    """

    def __init__(
        self,
        instructions: list[_C.Instruction],
        num_micro_batches: int,
        stages: list[list[int]],
    ) -> None:
        def number(value: int | None) -> int:
            return -1 if value is None else value

        self.num_micro_batches = num_micro_batches
        self.steps = [
            Step(
                it.kind,
                it.stage,
                number(it.micro_batch),
                number(it.version),
                number(it.peer),
                it.text(),
                (it.stage, number(it.micro_batch)),
            )
            for it in instructions
        ]
        of_kind: dict[str, set[tuple[int, int]]] = {}
        for step in self.steps:
            of_kind.setdefault(step.kind, set()).add(step.key)
        self.recomputed = of_kind.get("recompute", set())
        self.sent = of_kind.get("send_activation", set())
        self.sent_back = of_kind.get("send_gradient", set())
        self.receives = [step for step in self.steps if step.kind in _RECEIVES]
        self._forwards = of_kind.get("forward", set())
        # By rank: index of the last step that needs the rank.
        self.last_needs: dict[int, int] = {}
        for i, step in enumerate(self.steps):
            summed = stages[step.stage] if step.kind in ("reduce", "step") else []
            for rank in (step.peer, *summed):
                self.last_needs[rank] = i

    def micro_batches_of(self, stage: int) -> set[int]:
        """The micro-batches that this rank computes for the stage."""
        return {b for s, b in self._forwards if s == stage}


_RECEIVES = ("receive_activation", "receive_gradient")

Waits = Generator[Pending, None, None]


@dataclass
class _Arrival:
    """A message that was not received yet."""

    step: Step
    # The receive of the promise that precedes the message.
    promised: tuple[Pending, torch.Tensor] | None = None
    message: tuple[Pending, torch.Tensor] | None = None

    @property
    def is_gradient(self) -> bool:
        return self.step.kind == "receive_gradient"


@dataclass(slots=True)
class Values:
    """Tensors that one run has computed or received and not used yet.

    All tables are by own stage and micro-batch. Each run has its own object.

    Attributes:
        inputs: inputs of a forward, with the weight of the micro-batch.
        outputs: outputs to send to the next stage, with the weight.
        gradients: gradients of the outputs of a stage.
        gradients_out: gradients to send to the stage before, with their divisor.
        without_gradient: outputs that get no gradient.
        without_answer: inputs for which no gradient is sent back.
    """

    inputs: dict[Key, tuple[Tensors, float]] = field(default_factory=dict)
    outputs: dict[Key, tuple[Tensors, float]] = field(default_factory=dict)
    gradients: dict[Key, Tensors] = field(default_factory=dict)
    gradients_out: dict[Key, tuple[Tensors, float]] = field(default_factory=dict)
    without_gradient: set[Key] = field(default_factory=set)
    without_answer: set[Key] = field(default_factory=set)

    def has_gradient(self, key: Key) -> bool:
        """True if the gradients have arrived, or none will come."""
        return key in self.gradients or key in self.without_gradient


class Receives:
    """The receives of one run: which are expected, posted and not used yet.

    Args:
        expected: the receives of the program, in order.

    Attributes:
        asked: expected promises, by own stage and sender.
    """

    def __init__(self, expected: Iterable[Step]) -> None:
        self._expected = deque(expected)
        self._posted: set[tuple[str, int, int]] = set()
        self._arrivals: dict[tuple[str, int, int], _Arrival] = {}
        self.asked: dict[Key, _Arrival] = {}

    def is_posted(self, step: Step) -> bool:
        """True if the receive was posted in this run."""
        return (step.kind, *step.key) in self._posted

    def add(self, arrival: _Arrival) -> None:
        """Records that a receive was posted."""
        key = arrival.step.kind, *arrival.step.key
        self._arrivals[key] = arrival
        self._posted.add(key)

    def post_ahead(self, post: Callable[[Step], bool]) -> None:
        """Posts the next receives, until `AHEAD` messages are on their way.

        Args:
            post: posts a receive and calls `add`; False if that is not possible yet.
        """
        while self._expected and len(self._arrivals) < AHEAD:
            first = self._expected[0]
            if not self.is_posted(first) and not post(first):
                return
            self._expected.popleft()

    def find(self, kind: str, key: Key) -> _Arrival | Step:
        """The message for a micro-batch, or its receive if that is not posted yet."""
        wanted = (kind, *key)
        if wanted in self._arrivals:
            return self._arrivals[wanted]
        return next(r for r in self._expected if (r.kind, *r.key) == wanted)

    def remove(self, arrival: _Arrival) -> None:
        """The message was received."""
        del self._arrivals[arrival.step.kind, *arrival.step.key]


class Executor:
    """Executor of one rank of one pipeline. It lives as long as the pipeline.

    Args:
        stages: stages of this rank, by number.
        channel: connection to the other ranks.
        teller: is told of each executed instruction.
    """

    def __init__(
        self,
        stages: dict[int, StageRun],
        channel: Channel,
        teller: Teller | None = None,
    ) -> None:
        self._teller = teller or Teller()
        self._stages = stages
        self._channel = channel
        # By own stage: the form of the outputs that it sends.
        self._promises: dict[int, Promise] = {}
        # Pairs of own stage and rank that have been sent the promise.
        self._told: set[tuple[int, int]] = set()
        # By own stage and sender: received promises.
        self._heard: dict[tuple[int, int], Promise] = {}
        self.at = 0  # index of the step in execution
        # Observer of the runs that begin from now on.
        self.observer: Observer | None = None
        self._act: dict[str, Callable[[Step], Waits | None]] = {
            "forward": self._forward,
            "recompute": self._recompute,
            "backward": self._backward,
            "input_gradient": self._input_gradient,
            "weight_gradient": self._weight_gradient,
            "send_activation": self._send_activation,
            "receive_activation": self._receive,
            "send_gradient": self._send_gradient,
            "receive_gradient": self._receive,
            "reduce": self._reduce,
            "step": self._step,
            "push": self._push,
            "pop": self._pop,
        }

    def run(self, program: Program, feed: Feed) -> Waits:
        """Executes the program; yields each operation that must end before it
        goes on.
        """
        self._program = program
        self._feed = feed
        self._receives = Receives(program.receives)
        self._values = Values()
        self._sends: deque[tuple[Pending, torch.Tensor]] = deque()
        self._sums: dict[int, Sum] = {}
        for stage in self._stages.values():
            stage.begin()
        try:
            for self.at, step in enumerate(program.steps):
                self._receives.post_ahead(self._post)
                waits = self._act[step.kind](step)
                if waits is not None:
                    yield from waits
            while self._sends:
                yield self._sends[0][0]
                self._sends.popleft()
        finally:
            for stage in self._stages.values():
                stage.end()

    # ---- computing ----

    def _forward(self, step: Step) -> Waits:
        stage = self._stages[step.stage]
        if step.stage == 0:
            inputs, weight = self._feed.inputs(step.micro_batch)
        else:
            if step.key not in self._values.inputs:
                yield from self._arrive("receive_activation", step)
            inputs, weight = self._values.inputs.pop(step.key)
        target = self._feed.target(step.micro_batch, weight) if stage.is_last else None
        begun, told = self._begun(), self._teller.begin()
        outputs = stage.forward(
            step.micro_batch,
            step.version,
            inputs,
            weight,
            target=target,
            is_kept=step.key not in self._program.recomputed,
        )
        self._computed(step.stage, False, begun)
        self._tell(step, told)
        if stage.is_last:
            return
        if weight > 0:
            promise = self._promises.get(step.stage)
            if promise is None:
                promise = self._promises[step.stage] = Promise.of(outputs)
            promise.check(outputs, step.stage, step.micro_batch)
        if step.key in self._program.sent:
            self._values.outputs[step.key] = outputs, weight
        else:  # the next stage is on this rank
            given = (o.detach().requires_grad_(o.requires_grad) for o in outputs)
            self._values.inputs[step.stage + 1, step.micro_batch] = tuple(given), weight

    def _recompute(self, step: Step) -> None:
        told = self._teller.begin()
        self._stages[step.stage].recompute(step.micro_batch)
        self._tell(step, told)

    def _backward(self, step: Step) -> Waits:
        yield from self._need_gradient(step)
        gradients = self._values.gradients.pop(step.key, ())
        stage = self._stages[step.stage]
        divisor = stage.divisor_of(step.micro_batch)
        begun, told = self._begun(), self._teller.begin()
        found = stage.backward(step.micro_batch, gradients)
        self._computed(step.stage, True, begun)
        self._tell(step, told)
        self._leave(step, found, divisor)

    def _input_gradient(self, step: Step) -> Waits:
        yield from self._need_gradient(step)
        gradients = self._values.gradients.pop(step.key, ())
        stage = self._stages[step.stage]
        divisor = stage.divisor_of(step.micro_batch)
        told = self._teller.begin()
        found = stage.input_gradient(step.micro_batch, gradients)
        self._tell(step, told)
        self._leave(step, found, divisor)

    def _weight_gradient(self, step: Step) -> None:
        told = self._teller.begin()
        self._stages[step.stage].weight_gradient(step.micro_batch)
        self._tell(step, told)

    def _need_gradient(self, step: Step) -> Waits:
        is_here = self._values.has_gradient(step.key)
        if not is_here and not self._stages[step.stage].is_last:
            yield from self._arrive("receive_gradient", step)

    def _leave(self, step: Step, gradients: Tensors, divisor: float) -> None:
        if step.key in self._program.sent_back:
            self._values.gradients_out[step.key] = gradients, divisor
        elif step.stage > 0:  # the stage before is on this rank
            self._values.gradients[step.stage - 1, step.micro_batch] = gradients
            self._stages[step.stage - 1].set_divisor(step.micro_batch, divisor)

    def _begun(self) -> float:
        return self.observer.clock() if self.observer else 0.0

    def _computed(self, stage: int, is_backward: bool, begun: float) -> None:
        if self.observer:
            self.observer.computed(stage, is_backward, begun)

    # ---- updates ----

    def _reduce(self, step: Step) -> None:
        stage = self._stages[step.stage]
        self._sums[step.stage] = Sum(
            stage.take_update(),
            stage.parameters,
            lambda tensor: self._channel.reduce(step.stage, tensor),
        )

    def _step(self, step: Step) -> Waits:
        stage = self._stages[step.stage]
        total = self._sums.pop(step.stage, None)
        if total is not None:
            yield from total.pending
        told = self._teller.begin()
        stage.step(step.version, total.update() if total else stage.take_update())
        self._tell(step, told)

    def _push(self, step: Step) -> None:
        self._stages[step.stage].weights.push(step.version)

    def _pop(self, step: Step) -> None:
        self._stages[step.stage].weights.pop(step.version)

    # ---- sending ----

    def _send_activation(self, step: Step) -> None:
        outputs, weight = self._values.outputs.pop(step.key)
        promise = self._promises.get(step.stage)
        if (step.stage, step.peer) not in self._told:
            message = Promise.message_of(promise)
            self._send(step, _PROMISE, message)
            if promise is not None:
                self._told.add((step.stage, step.peer))
        if promise is None:
            self._values.without_gradient.add(step.key)
            return
        device = self._stages[step.stage].device
        packed = promise.pack(outputs if weight > 0 else None, weight, device)
        self._send(step, _ACTIVATION, packed.buffer)
        if packed.overflow is not None:
            self._send(step, _MORE_ACTIVATION, packed.overflow)

    def _send_gradient(self, step: Step) -> None:
        gradients, divisor = self._values.gradients_out.pop(step.key)
        if step.key in self._values.without_answer:
            return
        promise = self._heard[step.stage, step.peer].gradients
        packed = promise.pack(gradients, divisor, self._stages[step.stage].device)
        self._send(step, _GRADIENT, packed.buffer)
        if packed.overflow is not None:
            self._send(step, _MORE_GRADIENT, packed.overflow)

    def _send(self, step: Step, kind: int, buffer: torch.Tensor) -> None:
        while self._sends and self._sends[0][0].is_done():
            self._sends.popleft()[0].wait()  # raises the error of a failed send
        if self.observer and kind in (_ACTIVATION, _GRADIENT):
            self.observer.sends((kind == _GRADIENT, step.stage, step.micro_batch))
        # The tag of a gradient names the stage that receives it.
        stage = step.stage - (kind in (_GRADIENT, _MORE_GRADIENT))
        told = self._teller.begin()
        pending = self._channel.send(step.peer, self._tag(kind, stage, step), buffer)
        self._sends.append((pending, buffer))
        if kind in (_ACTIVATION, _GRADIENT):
            self._tell(step, told)

    def _tell(self, step: Step, begun: int) -> None:
        self._teller.end(step.kind, step.stage, step.micro_batch, begun)

    def _tag(self, kind: int, stage: int, step: Step) -> int:
        """Tag of a message; `stage` is the stage that the activation comes from."""
        at = stage * self._program.num_micro_batches + step.micro_batch
        return _tags.PIPELINE.tag(at * _NUM_KINDS + kind)

    # ---- receiving ----

    def _receive(self, step: Step) -> None:
        if not self._receives.is_posted(step):
            self._post(step)

    def _post(self, step: Step) -> bool:
        """Posts a receive; returns False if its size is not known yet."""
        arrival = _Arrival(step)
        if arrival.is_gradient:
            if step.key not in self._values.without_gradient:
                promise = self._promises.get(step.stage)
                if promise is None:
                    return False
                self._post_message(arrival, promise.gradients)
        elif (step.stage, step.peer) in self._heard:
            self._post_message(arrival, self._heard[step.stage, step.peer])
        else:
            if (step.stage, step.peer) in self._receives.asked:
                return False
            self._receives.asked[step.stage, step.peer] = arrival
            buffer = torch.empty(MESSAGE_BYTES, dtype=torch.uint8)
            pending = self._into(arrival, _PROMISE, buffer)
            arrival.promised = pending, buffer
        self._receives.add(arrival)
        return True

    def _post_message(self, arrival: _Arrival, promise: Promise) -> None:
        kind = _GRADIENT if arrival.is_gradient else _ACTIVATION
        buffer = promise.buffer(self._stages[arrival.step.stage].device)
        pending = self._into(arrival, kind, buffer)
        arrival.message = pending, buffer
        if self.observer:
            stage = arrival.step.stage + (1 if arrival.is_gradient else -1)
            message = arrival.is_gradient, stage, arrival.step.micro_batch
            pending.when_done(self.observer.arrival_of(message))

    def _into(self, arrival: _Arrival, kind: int, buffer: torch.Tensor) -> Pending:
        step = arrival.step
        stage = step.stage if arrival.is_gradient else step.stage - 1
        tag = self._tag(kind, stage, step)
        return self._channel.receive(step.peer, tag, buffer)

    def _arrive(self, kind: str, step: Step) -> Waits:
        """Waits for the input or the gradient of a micro-batch."""
        while isinstance(arrival := self._receives.find(kind, step.key), Step):
            if not self._post(arrival):
                yield from self._hear(self._receives.asked[arrival.stage, arrival.peer])
        yield from self._hear(arrival)
        self._receives.remove(arrival)
        peer = arrival.step.peer
        if arrival.message is None:
            self._values.inputs[step.key] = (), 0.0
            self._values.without_answer.add(step.key)
        elif arrival.is_gradient:
            promise = self._promises[step.stage].gradients
            content = yield from self._content(arrival, promise, _MORE_GRADIENT)
            self._values.gradients[step.key], divisor = content
            self._stages[step.stage].set_divisor(step.micro_batch, divisor)
        else:
            promise = self._heard[step.stage, peer]
            tensors, weight = yield from self._content(
                arrival, promise, _MORE_ACTIVATION
            )
            for tensor, promised in zip(tensors, promise.tensors, strict=True):
                tensor.requires_grad_(promised.needs_gradient)
            self._values.inputs[step.key] = tensors, weight

    def _hear(self, arrival: _Arrival) -> Waits:
        """Waits for the promise that precedes a message, if there is one."""
        if arrival.promised is None:
            return
        pending, buffer = arrival.promised
        yield pending
        arrival.promised = None
        place = arrival.step.stage, arrival.step.peer
        del self._receives.asked[place]
        promise = Promise.from_message(buffer)
        if promise is not None:
            self._heard[place] = promise
            self._post_message(arrival, promise)

    def _content(
        self, arrival: _Arrival, promise: Promise, more: int
    ) -> Generator[Pending, None, tuple[Tensors, float]]:
        assert arrival.message is not None
        pending, buffer = arrival.message
        told = self._teller.begin()
        yield pending
        self._tell(arrival.step, told)
        content = promise.unpack(buffer)
        if content.overflow_rows is None:
            return content.tensors, content.weight
        promise = promise.of_rows(content.overflow_rows)
        buffer = promise.buffer(buffer.device)
        yield self._into(arrival, more, buffer)
        return promise.tensors_in(buffer), content.weight
