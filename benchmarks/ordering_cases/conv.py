# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Training loops like those of small convolutional models, without tuning.

Layers sleep for the time of their computation. Means are over 200 steps, in which
OverlappedDataParallel also plans, and compares its plan with plain buckets.
"""

import functools
import statistics
from itertools import accumulate

from aikido_torch.ddp._iteration import Iteration, graph_of
from aikido_torch.ordering import LinkCost, plan_iteration
from benchmarks.ordering_cases import ddp, ddp_runs
from benchmarks.ordering_cases.ddp_plan import Layer, Training
from benchmarks.straggler_cases.case import Bar, Case, Context, Row

NUM_HOSTS = 4
MBIT = 200.0
STEPS = 200
# Nearly all of the time is in the convolutions, and most bytes are in the layers after
# them: (share of the time, share of the bytes).
SHARES = ((0.3, 0.01), (0.35, 0.05), (0.2, 0.14), (0.12, 0.7), (0.03, 0.1))
# MB of gradients, and ms of computation.
LOOPS = ((1.87, 26.0), (0.68, 24.0), (0.28, 14.0))


def bound_ms(layers: list[Layer]) -> float:
    """Time of an iteration with the best order, on links without latency."""
    forward = list(accumulate((f / 1e3 for f, _, _ in layers), initial=0.0))
    backward = list(accumulate((b / 1e3 for _, b, _ in reversed(layers))))
    names = [str(number) for number in range(len(layers))]
    ready = [forward[-1] + at for at in backward]
    compute_s = ready[-1]
    iteration = Iteration(
        uses=tuple(zip(names, forward, strict=False)),
        ready=tuple(zip(reversed(names), ready, strict=True)),
        compute_s=compute_s,
        seconds=compute_s,
    )
    seconds_a_byte = 2 * (NUM_HOSTS - 1) / NUM_HOSTS / (MBIT * 1e6 / 8 * ddp.GOODPUT)
    link = LinkCost(alpha_s=0.0, beta_s=seconds_a_byte)
    sizes = {name: size for name, (_, _, size) in zip(names, layers, strict=True)}
    plan = plan_iteration(graph_of(iteration, sizes, link), link=link)
    return 1e3 * plan.timeline.makespan_s


def measure(
    case: Case, context: Context, megabytes: float, compute_ms: float
) -> list[Row]:
    """Steps of both methods, in turn."""
    layers = ddp.model_of(
        SHARES, compute_ms=compute_ms, total_bytes=round(megabytes * 1e6)
    )
    arms = [
        Training(name=arm, model="model", arm=arm, steps=STEPS)
        for arm in ("ddp", "overlapped")
    ]
    with ddp_runs.lab_of(NUM_HOSTS, mbit=MBIT) as lab:
        turns = context.pick(2 if megabytes > 1 else 3, 5)
        records = ddp_runs.run(lab, {"model": layers}, arms * turns, context)
    theirs, ours = (
        statistics.median(ddp_runs.step_ms(records, name))
        for name in ("ddp", "overlapped")
    )
    # If ranks share a core, computation takes longer; the slowest rank counts.
    seen = [r.by_rank for r in records if r.training.name == "overlapped"]
    measured_ms = statistics.median(
        max(own["compute_ms"] for own in by_rank.values()) for by_rank in seen
    )
    slower = max(1.0, measured_ms / compute_ms)
    real = [(slower * f, slower * b, size) for f, b, size in layers]
    ends = "; ".join(of_turn[0]["verdict"] or of_turn[0]["plan"] for of_turn in seen)
    note = f"computing {measured_ms:.1f} ms; {ends}"
    return [
        case.judge(0, value=theirs / ours, reference=1.0, note=note),
        case.judge(1, value=bound_ms(real) / ours, reference=1.0),
    ]


CASES = [
    Case(
        name=f"convolutional-{megabytes:g}-mb",
        what=f"{NUM_HOSTS} hosts of {MBIT:g} Mbit/s; {megabytes:g} MB of gradients, "
        f"{compute_ms:g} ms of computing, {STEPS} steps",
        bars=(
            Bar(
                what="steps per second, mean",
                of="DDP over aikido",
                bar=0.99,
                unit="x",
                better="higher",
            ),
            Bar(
                what="steps per second, mean",
                of="the bound of computing and bytes",
                bar=0.9,
                unit="x",
                better="higher",
            ),
        ),
        measure=functools.partial(measure, megabytes=megabytes, compute_ms=compute_ms),
    )
    for megabytes, compute_ms in LOOPS
]
