# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Trainings of layers that sleep: sums that continue in the next forward, beside
DDP.
"""

import statistics
from collections.abc import Sequence

from benchmarks.ordering_cases import ddp_plan, ddp_runs
from benchmarks.ordering_cases.ddp_plan import Layer, Training
from benchmarks.ordering_cases.ddp_runs import Record
from benchmarks.straggler_cases.case import Bar, Case, CaseError, Context, Row

NUM_HOSTS = 3
MBIT = 100.0
GOODPUT = 0.955  # share of the rate that is left after headers
BUCKETS_MB = (0.25, 1.0, 25.0)
KB = 1000
# Nearly all of the time is in the first layers, and nearly all bytes are in the last
# ones, which are ready first and needed last.
VGG_SHARES = (
    *((0.16, 0.02) for _ in range(6)),
    (0.02, 0.60),
    (0.01, 0.20),
    (0.01, 0.08),
)
# Nearly all bytes are in the first layer, which is ready last and needed first.
EMBEDDING_SHARES = ((0.02, 0.90), *((0.14, 0.0143) for _ in range(7)))
TOTAL_BYTES = 2_400 * KB
PLANNED_MBIT = (100.0, 200.0, 500.0)
# Steps after a change of the rate, to notice it, plan, try and measure.
CHANGED_STEPS = 60
# Steps of OverlappedDataParallel until its plan was compared with plain buckets.
TRIAL_STEPS = 30


def model_of(
    shares: Sequence[tuple[float, float]], *, compute_ms: float, total_bytes: int
) -> list[Layer]:
    """Layers with those shares of time and bytes; a third of the time is forward."""
    return [
        (time * compute_ms / 3, time * compute_ms * 2 / 3, round(size * total_bytes))
        for time, size in shares
    ]


def communication_ms(total_bytes: int, mbit: float) -> float:
    layers = [(0.0, 0.0, total_bytes)]
    rate = mbit * 1e6 / 8 * GOODPUT
    return 1e3 * ddp_plan.link_s(layers, num_ranks=NUM_HOSTS, bytes_per_s=rate)


def arms(model: str, *, steps: int) -> list[Training]:
    ddp = [
        Training(
            name=f"ddp {backend} {bucket:g} MB",
            model=model,
            arm="ddp",
            backend=backend,
            bucket_mb=bucket,
            steps=steps,
        )
        for backend in ("gloo", "aikido")
        for bucket in BUCKETS_MB
    ]
    ours = Training(
        name="overlapped",
        model=model,
        arm="overlapped",
        warm_up=TRIAL_STEPS,
        steps=steps,
    )
    return [*ddp, ours]


def medians(records: Sequence[Record]) -> dict[str, float]:
    names = dict.fromkeys(record.training.name for record in records)
    return {name: statistics.median(ddp_runs.step_ms(records, name)) for name in names}


def best(found: dict[str, float], backend: str) -> float:
    """Time of DistributedDataParallel on a backend, with its best bucket size."""
    return min(v for name, v in found.items() if name.startswith(f"ddp {backend}"))


def measured(layers: list[Layer], context: Context) -> tuple[dict[str, float], str]:
    turns = context.pick(2, 5)
    with ddp_runs.lab_of(NUM_HOSTS, mbit=MBIT) as lab:
        trainings = arms("model", steps=context.pick(6, 10)) * turns
        records = ddp_runs.run(lab, {"model": layers}, trainings, context)
    found = medians(records)
    return found, ", ".join(f"{name} {ms:.0f}" for name, ms in found.items()) + " ms"


def vgg_layers() -> list[Layer]:
    compute_ms = communication_ms(TOTAL_BYTES, MBIT)
    return model_of(VGG_SHARES, compute_ms=compute_ms, total_bytes=TOTAL_BYTES)


def embedding_layers() -> list[Layer]:
    compute_ms = communication_ms(TOTAL_BYTES, MBIT)
    return model_of(EMBEDDING_SHARES, compute_ms=compute_ms, total_bytes=TOTAL_BYTES)


def tiny_layers() -> list[Layer]:
    return model_of([(0.05, 0.05)] * 20, compute_ms=200.0, total_bytes=40 * KB)


def vgg(case: Case, context: Context) -> list[Row]:
    layers = vgg_layers()
    found, note = measured(layers, context)
    ddp = min(best(found, "gloo"), best(found, "aikido"))
    ours = found["overlapped"]
    # All communication beside computation; DDP hides only the part beside the backward.
    forward_s = sum(forward for forward, _, _ in layers) / 1e3
    compute_s = ddp_plan.compute_s(layers)
    bound = (forward_s + compute_s) / compute_s
    return [
        case.judge(0, value=ours, reference=ddp, gloo=best(found, "gloo"), note=note),
        case.judge(1, value=ddp / ours, reference=bound),
    ]


def against_best(case: Case, context: Context, layers: list[Layer]) -> list[Row]:
    found, note = measured(layers, context)
    ddp = min(best(found, "gloo"), best(found, "aikido"))
    return [
        case.judge(
            0,
            value=found["overlapped"],
            reference=ddp,
            gloo=best(found, "gloo"),
            note=note,
        )
    ]


def embedding(case: Case, context: Context) -> list[Row]:
    return against_best(case, context, embedding_layers())


def tiny(case: Case, context: Context) -> list[Row]:
    return against_best(case, context, tiny_layers())


def planner(case: Case, context: Context) -> list[Row]:
    """At each rate, a model whose communication takes 1.5 times its computation."""
    compute_ms = communication_ms(TOTAL_BYTES, MBIT)
    models, trainings = {}, []
    for mbit in PLANNED_MBIT:
        total = round(1.5 * TOTAL_BYTES * mbit / MBIT)
        name = f"{mbit:g} Mbit/s"
        models[name] = model_of(VGG_SHARES, compute_ms=compute_ms, total_bytes=total)
        trainings.append(
            Training(
                name=name,
                model=name,
                arm="overlapped",
                warm_up=TRIAL_STEPS,
                steps=10,
                mbit=mbit,
            )
        )
    with ddp_runs.lab_of(NUM_HOSTS, mbit=MBIT) as lab:
        repeats = context.pick(2, 5)
        records = ddp_runs.run(lab, models, trainings * repeats, context)
    rows = []
    for number, training in enumerate(trainings):
        own = [r for r in records if r.training.name == training.name]
        measured = statistics.median(r.step_ms for r in own)
        predicted = statistics.median(r.by_rank[0]["predicted_ms"] for r in own)
        off = max(measured, predicted) / min(measured, predicted)
        rows.append(
            case.judge(
                number,
                value=predicted * off,
                reference=predicted,
                note=f"measured {measured:.0f} ms, predicted {predicted:.0f} ms, "
                f"{own[-1].by_rank[0]['plan']}",
            )
        )
    return rows


def rate_change(case: Case, context: Context) -> list[Row]:
    """Links lose half of their rate during a training."""
    compute_ms = communication_ms(TOTAL_BYTES, MBIT)
    total = round(1.5 * TOTAL_BYTES)
    models = {"model": model_of(VGG_SHARES, compute_ms=compute_ms, total_bytes=total)}
    training = Training(
        name="overlapped",
        model="model",
        arm="overlapped",
        steps=TRIAL_STEPS + 15 + CHANGED_STEPS,
        mbit=2 * MBIT,
        later_mbit=MBIT,
        later=CHANGED_STEPS,
    )
    with ddp_runs.lab_of(NUM_HOSTS, mbit=2 * MBIT) as lab:
        repeats = context.pick(1, 3)
        records = ddp_runs.run(lab, models, [training] * repeats, context)
    offs = []
    for record in records:
        seen = record.by_rank[0]
        if seen["num_plans"] < 2:
            raise CaseError("there was no other plan after the rate had changed")
        pair = record.last_ms(8), seen["predicted_ms"]
        offs.append((max(pair) / min(pair), *pair))
    off, measured, predicted = sorted(offs)[len(offs) // 2]
    return [
        case.judge(
            0,
            value=predicted * off,
            reference=predicted,
            note=f"measured {measured:.0f} ms, predicted {predicted:.0f} ms",
        )
    ]


_HOSTS = f"{NUM_HOSTS} hosts of {MBIT:g} Mbit/s"
_DDP = "DDP, its best backend and bucket size"

CASES = [
    Case(
        name="vgg-like",
        what=f"{_HOSTS}; most bytes in the last layers, communication = computation",
        bars=(
            Bar(what="step", of=_DDP, bar=1 / 1.2),
            Bar(
                what="gain over DDP",
                of="what full overlap gives",
                bar=0.9,
                unit="x",
                better="higher",
            ),
        ),
        measure=vgg,
    ),
    Case(
        name="embedding-like",
        what=f"{_HOSTS}; most bytes in the first layer, where nothing is to be gained",
        bars=(Bar(what="step", of=_DDP, bar=1.02),),
        measure=embedding,
    ),
    Case(
        name="tiny",
        what=f"{_HOSTS}; 20 layers of 2 KB",
        bars=(Bar(what="step", of=_DDP, bar=1.03),),
        measure=tiny,
    ),
    Case(
        name="planner",
        what=f"{NUM_HOSTS} hosts; communication = 1.5 computation at each rate",
        bars=tuple(
            Bar(what=f"step at {mbit:g} Mbit/s, off by", of="the prediction", bar=1.1)
            for mbit in PLANNED_MBIT
        ),
        measure=planner,
    ),
    Case(
        name="rate-change",
        what=f"{NUM_HOSTS} hosts; links of {2 * MBIT:g} Mbit/s get {MBIT:g} meanwhile",
        bars=(Bar(what="step, off by", of="the new plan's prediction", bar=1.1),),
        measure=rate_change,
    ),
]
