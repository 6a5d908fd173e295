# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Decision whether another plan is worth a restart, from measured times.

Pure. The caller acts on it, and starts ranks with other stages: `save`, `recut` the
checkpoint, make the pipeline of the new plan, `restore`.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass

from aikido_torch import _C
from aikido_torch.errors import ConfigError
from aikido_torch.pipeline.plan import _arguments as arguments
from aikido_torch.pipeline.plan._partition import CostModel, partition
from aikido_torch.pipeline.runtime._observe import LiveTimes

__all__ = ["Moving", "Replan", "live_profile", "replan"]

# A link that is busy for a smaller share of a period gives no estimate of its
# bandwidth.
_TELLING = 0.1


@dataclass(frozen=True, kw_only=True)
class Moving:
    """Cost of a change to another plan.

    Args:
        bytes_per_s: bytes per second at which one rank writes or reads checkpoints.
        restart_s: seconds until all ranks have ended and the new ranks are ready.
        state: bytes of a checkpoint for each byte of weights: 1 for SGD, 2 with
            momentum, 3 for Adam.

    Raises:
        ConfigError: a value is out of its range.
    """

    bytes_per_s: float
    restart_s: float = 0.0
    state: float = 3.0

    def __post_init__(self) -> None:
        for name in ("bytes_per_s", "restart_s", "state"):
            arguments.number(name, getattr(self, name))
        if not self.bytes_per_s > 0 or not self.restart_s >= 0 or not self.state >= 1:
            raise ConfigError(
                f"Moving has bytes_per_s {self.bytes_per_s}, restart_s "
                f"{self.restart_s} and state {self.state}; they take numbers above 0, "
                "from 0 and from 1 on."
            )

    def seconds(self, before: _C.Plan, after: _C.Plan) -> float:
        """Seconds to write the largest old stage and read the largest new stage, and
        restart.
        """
        largest = [
            max(stage.parameter_bytes for stage in plan.stages)
            for plan in (before, after)
        ]
        return sum(largest) * self.state / self.bytes_per_s + self.restart_s


@dataclass(frozen=True)
class Replan:
    """Result of `replan`; seconds are times from one micro-batch to the next."""

    plan: _C.Plan  # the best plan for the measured times, which may be the plan in use
    pays: bool
    now_s: float
    then_s: float
    moving_s: float
    # Number of micro-batches after which the change has paid off; None: never.
    break_even: int | None
    reason: str


def replan(
    profile: _C.Profile,
    plan: _C.Plan,
    times: LiveTimes,
    *,
    machines: int,
    bandwidth: float,
    micro_batches_left: int,
    moving: Moving,
    without: Collection[int] = (),
    cost_model: CostModel = "paper",
    memory_bytes: float | None = None,
) -> Replan:
    """Compares the plan in use with the best plan for the measured times.

    If a stage takes longer than in the profile, its layers are assumed to be slower on
    any machine. For a slow machine instead of slow layers, use `without`.

    Args:
        profile: the profile that the plan was made from, with one level of machines.
        plan: the plan in use.
        times: times that ranks measured with that plan.
        machines: number of machines for the new plan.
        bandwidth: bytes per second of a healthy link. The slowest measured link counts
            for all links.
        micro_batches_left: number of micro-batches until the end of the training.
        moving: cost of a change.
        without: ranks of the plan in use whose machines and links are slow and will not
            be used. They must not be counted in `machines`.
        cost_model, memory_bytes: arguments of `partition`.

    Raises:
        ConfigError: times or profile do not belong to that plan; or as `partition`.
    """
    if len(times.forward) != len(plan.stages):
        raise ConfigError(
            f"the times are of {len(times.forward)} stages, and the plan has "
            f"{len(plan.stages)}; measure the plan that is in use."
        )
    machines = arguments.whole("machines", machines)
    bandwidth = arguments.number("bandwidth", bandwidth)
    micro_batches_left = arguments.whole(
        "micro_batches_left", micro_batches_left, least=0
    )
    now_s = _period_now(plan, times)
    rate = min([bandwidth, *_rates(plan, times, now_s, without)])
    found = partition(
        live_profile(profile, plan, times, without),
        machines=machines,
        bandwidth=rate,
        cost_model=cost_model,
        memory_bytes=memory_bytes,
    )
    if _is_same(plan, found):
        text = f"plan {plan.text} is the best for what was measured, too"
        return Replan(plan, False, now_s, now_s, 0.0, None, text)
    gain, moving_s = now_s - found.period_s, moving.seconds(plan, found)
    break_even = math.ceil(moving_s / gain) if gain > 0 else None
    pays = break_even is not None and break_even < micro_batches_left
    told = (
        f"plan {found.text} takes {1e3 * found.period_s:.1f} ms a micro-batch and "
        f"{plan.text} takes {1e3 * now_s:.1f} ms now; moving takes {moving_s:.1f} s"
    )
    if break_even is None:
        told += ", for nothing"
    else:
        verb = "has paid" if pays else "would have paid"
        told += (
            f", which {verb} after {break_even} of the {micro_batches_left} "
            "micro-batches that are left"
        )
    return Replan(found, pays, now_s, found.period_s, moving_s, break_even, told)


def live_profile(
    profile: _C.Profile,
    plan: _C.Plan,
    times: LiveTimes,
    without: Collection[int] = (),
) -> _C.Profile:
    """The profile with the times of layers scaled by the measured times of their
    stages.

    Stages whose ranks are all in `without` are not scaled, because their machines are
    slow.
    """
    others = _stages_of(plan, without)
    layers = {layer.id: layer for layer in profile.layers}
    factors: dict[str, tuple[float, float]] = {}
    for number, (stage, forward_s, backward_s) in enumerate(
        zip(plan.stages, times.forward, times.backward, strict=True)
    ):
        if missing := [name for name in stage.layers if name not in layers]:
            raise ConfigError(
                f'the plan has layer "{missing[0]}", and the profile has not; it is '
                "the profile of another model."
            )
        own = [layers[name] for name in stage.layers]
        forward = sum(layer.forward_ms for layer in own) / 1e3
        backward = sum(layer.backward_ms for layer in own) / 1e3
        factor = (
            forward_s / forward if forward > 0 else 1.0,
            backward_s / backward if backward > 0 else 1.0,
        )
        if number in others:
            continue
        factors |= dict.fromkeys(stage.layers, factor)
    scaled = []
    for layer in profile.layers:
        up, down = factors.get(layer.id, (1.0, 1.0))
        scaled.append(
            _C.Layer(
                layer.id,
                description=layer.description,
                forward_ms=layer.forward_ms * up,
                backward_ms=layer.backward_ms * down,
                activation_bytes=layer.activation_bytes,
                parameter_bytes=layer.parameter_bytes,
            )
        )
    return _C.Profile(scaled, profile.edges)


def _period_now(plan: _C.Plan, times: LiveTimes) -> float:
    """Seconds between micro-batches in the plan in use: its slowest stage or link."""
    slowest, rank = 0.0, 0
    for stage, forward, backward in zip(
        plan.stages, times.forward, times.backward, strict=True
    ):
        worst = max(times.slowdown[rank : rank + stage.machines])
        rank += stage.machines
        taken = max((forward + backward) * worst, stage.sync_s)
        slowest = max(slowest, taken / stage.machines)
    return max([slowest, *(2 * link for link in times.links)])


def _rates(
    plan: _C.Plan, times: LiveTimes, period_s: float, without: Collection[int]
) -> list[float]:
    """Bytes per second of the links that are busy enough for an estimate."""
    others = _stages_of(plan, without)
    return [
        plan.stages[link + 1].input_bytes / seconds
        for link, seconds in enumerate(times.links)
        if 2 * seconds >= _TELLING * period_s
        and plan.stages[link + 1].input_bytes > 0
        and not others & {link, link + 1}
    ]


def _stages_of(plan: _C.Plan, ranks: Collection[int]) -> set[int]:
    """Stages whose ranks are all among `ranks`."""
    found, first = set(), 0
    for number, stage in enumerate(plan.stages):
        if {*range(first, first + stage.machines)} <= {*ranks}:
            found.add(number)
        first += stage.machines
    return found


def _is_same(one: _C.Plan, other: _C.Plan) -> bool:
    def told(plan: _C.Plan) -> list[tuple[set[str], int]]:
        return [({*stage.layers}, stage.machines) for stage in plan.stages]

    return told(one) == told(other)
