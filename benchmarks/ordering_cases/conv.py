# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Training loops like those of small convolutional models, without tuning.

Layers sleep for the time of their computation. Means are over 200 steps, in which
OverlappedDataParallel also plans, and compares its plan with plain buckets.
"""

import functools
import statistics
from itertools import accumulate

from aikido_torch.ordering import LinkCost, plan_iteration
from aikido_torch.overlap._iteration import Iteration, graph_of
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


def means_of(
    context: Context,
    layers: list[Layer],
    *,
    hosts: int,
    mbit: float,
    steps: int,
    turns: int,
) -> tuple[float, float, list[ddp_runs.Record]]:
    """ms of a step by DDP and by OverlappedDataParallel, in turn, and records of both.

    Means over the steps; of the turns the median.
    """
    arms = [
        Training(name=arm, model="model", arm=arm, steps=steps)
        for arm in ("ddp", "overlapped")
    ]
    with ddp_runs.lab_of(hosts, mbit=mbit) as lab:
        records = ddp_runs.run(lab, {"model": layers}, arms * turns, context)
    theirs, ours = (
        statistics.median(ddp_runs.step_ms(records, name))
        for name in ("ddp", "overlapped")
    )
    return theirs, ours, records


def ends_of(records: list[ddp_runs.Record]) -> str:
    """What the trials of OverlappedDataParallel found."""
    seen = [r.by_rank[0] for r in records if r.training.name == "overlapped"]
    return "; ".join(own["verdict"] or own["plan"] for own in seen)


def measure(
    case: Case, context: Context, megabytes: float, compute_ms: float
) -> list[Row]:
    """Steps of both, in turn."""
    layers = ddp.model_of(
        SHARES, compute_ms=compute_ms, total_bytes=round(megabytes * 1e6)
    )
    theirs, ours, records = means_of(
        context,
        layers,
        hosts=NUM_HOSTS,
        mbit=MBIT,
        steps=STEPS,
        turns=context.pick(2 if megabytes > 1 else 3, 5),
    )
    # Computing takes longer where ranks share a core, on whichever rank it is longest.
    seen = [r.by_rank for r in records if r.training.name == "overlapped"]
    measured_ms = statistics.median(
        max(own["compute_ms"] for own in by_rank.values()) for by_rank in seen
    )
    slower = max(1.0, measured_ms / compute_ms)
    real = [(slower * f, slower * b, size) for f, b, size in layers]
    note = f"computing {measured_ms:.1f} ms; {ends_of(records)}"
    return [
        case.judge(0, value=theirs / ours, reference=1.0, note=note),
        case.judge(1, value=bound_ms(real) / ours, reference=1.0),
    ]


def measure_mean(
    case: Case, context: Context, layers: list[Layer], quick_steps: int
) -> list[Row]:
    """Steps of both, in turn, for a loop of ddp.py."""
    theirs, ours, records = means_of(
        context,
        layers,
        hosts=ddp.NUM_HOSTS,
        mbit=ddp.MBIT,
        steps=context.pick(quick_steps, STEPS),
        turns=context.pick(1, 3),
    )
    note = f"{theirs:.1f} and {ours:.1f} ms; {ends_of(records)}"
    return [case.judge(0, value=theirs / ours, reference=1.0, note=note)]


NEVER_SLOWER = Bar(
    what="steps per second, mean",
    of="DDP over aikido",
    bar=0.99,
    unit="x",
    better="higher",
)

CASES = [
    Case(
        name=f"convolutional-{megabytes:g}-mb",
        what=f"{NUM_HOSTS} hosts of {MBIT:g} Mbit/s; {megabytes:g} MB of gradients, "
        f"{compute_ms:g} ms of computing, {STEPS} steps",
        bars=(
            NEVER_SLOWER,
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
] + [
    Case(
        name=f"{name}-mean",
        what=f"the loop of {name}; {STEPS} steps, of a long loop without --full 100",
        bars=(NEVER_SLOWER,),
        measure=functools.partial(
            measure_mean, layers=layers(), quick_steps=quick_steps
        ),
    )
    for name, layers, quick_steps in (
        ("vgg-like", ddp.vgg_layers, 100),
        ("embedding-like", ddp.embedding_layers, 100),
        ("tiny", ddp.tiny_layers, STEPS),
    )
]
