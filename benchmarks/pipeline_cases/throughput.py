# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Periods of plans of one profile, beside the partitioner's predictions.

A model of layers that sleep is profiled, partitioned for the measured links, and run by
three plans in turns: data parallel, without replicas, and the partitioner's choice.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from aikido_torch import _C, pipeline
from aikido_torch.pipeline.runtime import _adapt, _observe
from benchmarks.common import Samples
from benchmarks.lab import Lab
from benchmarks.pipeline_cases import runs
from benchmarks.pipeline_cases.layers import Spec
from benchmarks.pipeline_cases.plan import Run
from benchmarks.straggler_cases.case import Bar, Case, CaseError, Context, Row

KB = 1000
# Most of its time is in the first layers, most of its weights are in the last two, and
# little data passes between these.
VGG_LIKE = (
    *(
        Spec(forward_ms=25, backward_ms=50, output_bytes=size * KB, weight_bytes=5 * KB)
        for size in (150, 150, 150, 30)
    ),
    Spec(forward_ms=17, backward_ms=34, output_bytes=5 * KB, weight_bytes=1_750 * KB),
    Spec(forward_ms=16, backward_ms=32, output_bytes=4 * KB, weight_bytes=750 * KB),
)
# So much data passes between all layers that each cut costs more than a fourth of the
# whole, and weights are few.
RESNET_LIKE = tuple(
    Spec(forward_ms=27, backward_ms=55, output_bytes=172 * KB, weight_bytes=30 * KB)
    for _ in range(5)
)
# A straight plan takes as long as the links in the middle, which send as much up as
# down: more than three times as long as the computation.
FULL_LINKS = tuple(
    Spec(forward_ms=15, backward_ms=30, output_bytes=220 * KB)
    for _ in range(runs.HOSTS)
)
LIMIT_S = 400.0


@dataclass(frozen=True)
class Candidate:
    """A plan that is run, and its predicted period."""

    name: str
    stages: list[list[int]]
    replicas: list[int]
    predicted_ms: float

    def run(self, profile: _C.Profile, bandwidth: float, turns: int) -> Run:
        schedule = pipeline.schedule(
            "1f1b_async",
            stages=len(self.stages),
            replicas=self.replicas,
            micro_batches=turns,
            overlap_sums=True,
        )
        schedule = _adapt.fitting_schedule(
            schedule, planned_times(profile, self, bandwidth)
        )
        options = {k: v for k, v in schedule.options.items() if k != "stages"}
        memory = schedule.validate().ranks
        return Run(
            name=self.name,
            stages=self.stages,
            schedule=options,
            in_flight=sum(memory[rank].activations for rank in schedule.stages[0]),
        )


def planned_times(
    profile: _C.Profile, candidate: Candidate, bandwidth: float
) -> _observe.LiveTimes:
    """Predicted times of stages and links; links as in the partitioner."""
    layers = profile.layers

    def total(name: str) -> tuple[float, ...]:
        return tuple(
            sum(getattr(layers[i], name) for i in stage) / 1e3
            for stage in candidate.stages
        )

    links = tuple(
        2 * layers[stage[-1]].activation_bytes / bandwidth
        for stage in candidate.stages[:-1]
    )
    ranks = sum(candidate.replicas)
    return _observe.LiveTimes(
        total("forward_ms"), total("backward_ms"), links, (1.0,) * ranks
    )


def candidate_of(name: str, plan: _C.Plan, profile: _C.Profile) -> Candidate:
    numbers = {layer.id: number for number, layer in enumerate(profile.layers)}
    return Candidate(
        name,
        [sorted(numbers[layer] for layer in stage.layers) for stage in plan.stages],
        [stage.machines for stage in plan.stages],
        1e3 * plan.period_s,
    )


def candidates_of(
    profile: _C.Profile, bandwidth: float
) -> tuple[_C.Plan, list[Candidate]]:
    """The partitioner's choice, and the plans that are run, each once."""
    chosen = pipeline.partition(profile, machines=runs.HOSTS, bandwidth=bandwidth)
    straight = pipeline.partition(
        profile, machines=runs.HOSTS, bandwidth=bandwidth, straight=True
    )
    parallel = Candidate(
        "data parallel",
        [list(range(len(profile.layers)))],
        [runs.HOSTS],
        1e3 * chosen.data_parallel_s,
    )
    found = [parallel, candidate_of("straight", straight, profile)]
    if len(chosen.stages) > 1 and chosen.text != straight.text:
        found.append(candidate_of(chosen.text, chosen, profile))
    return chosen, found


def measured(
    lab: Lab,
    specs: Sequence[Spec],
    context: Context,
    *,
    turns: dict[str, int],
    only: str | None = None,
) -> tuple[_C.Plan, list[Candidate], dict[str, Samples], list[float]]:
    """The choice, the plans, their periods by name, and idle shares of the last plan.

    Args:
        lab: hosts of the ranks.
        specs: layers of the model.
        context: options of the run.
        turns: micro-batches of a plan, by name; "" for all others.
        only: name of the only plan to run; None runs all.
    """
    profile = runs.profile_of(specs)
    bandwidth = runs.bandwidth_of(lab)
    chosen, candidates = candidates_of(profile, bandwidth)
    candidates = [one for one in candidates if only in (None, one.name)]
    planned = [
        ("model", one.run(profile, bandwidth, turns.get(one.name, turns[""])))
        for one in candidates
    ] * context.pick(2, 5)
    records = runs.run(lab, {"model": specs}, planned, context, limit_s=LIMIT_S)
    periods, idle = {}, []
    for one in candidates:
        own = runs.named(records, one.name)
        steady = [record.steady() for record in own]
        periods[one.name] = Samples(tuple(s.period_ms for s in steady))
        if one is candidates[-1]:
            idle = [record.idle_share(s) for record, s in zip(own, steady, strict=True)]
    return chosen, candidates, periods, idle


def vgg(case: Case, context: Context) -> list[Row]:
    with runs.make_lab() as lab:
        chosen, candidates, periods, idle = measured(
            lab, VGG_LIKE, context, turns={"data parallel": 56, "": 48}
        )
    rows = predictions(case, candidates, periods)
    if [stage.machines for stage in chosen.stages] != [runs.HOSTS - 1, 1]:
        text = f"the partitioner chose {chosen.text}, not {runs.HOSTS - 1}-1"
        return [*rows, *(case.failed_row(n, CaseError(text)) for n in (3, 4))]
    ours = periods[chosen.text].median
    others = min(
        periods[one.name].median for one in candidates if one.name != chosen.text
    )
    share = Samples(tuple(idle)).median
    return [
        *rows,
        case.judge(3, value=ours, reference=others),
        case.judge(4, value=100 * share, reference=100),
    ]


def resnet(case: Case, context: Context) -> list[Row]:
    with runs.make_lab() as lab:
        chosen, candidates, periods, _ = measured(
            lab, RESNET_LIKE, context, turns={"": 48}
        )
    rows = predictions(case, candidates, periods)
    if len(chosen.stages) > 1:
        error = CaseError(f"the partitioner chose {chosen.text}, not data parallel")
        return [*rows, case.failed_row(2, error)]
    ours, straight = (periods[one.name].median for one in candidates[:2])
    return [*rows, case.judge(2, value=ours, reference=straight)]


def full_links(case: Case, context: Context) -> list[Row]:
    with runs.make_lab() as lab:
        _, candidates, periods, _ = measured(
            lab, FULL_LINKS, context, turns={"": 48}, only="straight"
        )
    return predictions(case, candidates, periods)


def predictions(
    case: Case, candidates: Sequence[Candidate], periods: dict[str, Samples]
) -> list[Row]:
    rows = []
    for number, one in enumerate(candidates):
        of = periods[one.name]
        told = "-".join(map(str, one.replicas))
        off = max(of.median, one.predicted_ms) / min(of.median, one.predicted_ms)
        rows.append(
            case.judge(
                number,
                value=one.predicted_ms * off,
                reference=one.predicted_ms,
                note=f"{told}: measured {of.median:.1f} ms (spread {of.spread:.1%}), "
                f"predicted {one.predicted_ms:.1f} ms",
            )
        )
    return rows


def _prediction(plan: str) -> Bar:
    return Bar(what=f"period of {plan}, off by", of="the prediction", bar=1.07)


CASES = [
    Case(
        name="vgg-like",
        what=f"{runs.HOSTS} hosts of {runs.MBIT:g} Mbit/s; weights in the last layers",
        bars=(
            _prediction("data parallel"),
            _prediction("straight"),
            _prediction("the choice"),
            Bar(
                what="period of r-1, the choice", of="the best other plan", bar=1 / 1.07
            ),
            Bar(what="idle in it", of="100 %", bar=0.05, unit="%"),
        ),
        measure=vgg,
    ),
    Case(
        name="resnet-like",
        what=f"{runs.HOSTS} hosts of {runs.MBIT:g} Mbit/s; much passes between layers",
        bars=(
            _prediction("data parallel, the choice"),
            _prediction("straight"),
            Bar(what="period of data parallel", of="straight", bar=1 / 1.07),
        ),
        measure=resnet,
    ),
    Case(
        name="full-links",
        what=f"{runs.HOSTS} hosts of {runs.MBIT:g} Mbit/s that are busy both ways",
        bars=(_prediction("straight"),),
        measure=full_links,
    ),
]
