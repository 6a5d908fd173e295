# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""The cases and their bars, fixed in advance."""

import dataclasses
import functools
from collections.abc import Sequence

from benchmarks.reassign_cases import runs
from benchmarks.reassign_cases.figures import Turns, distance_of_curves
from benchmarks.reassign_cases.plan import (
    ARMS,
    DDP,
    MOVES_EVERY,
    PREDICTED,
    REASSIGN,
    Training,
    in_turns,
)
from benchmarks.straggler_cases.case import Bar, Case, Context, Row

ITEMS, ITEM_MS = 16, 20.0
SLOWER = (50, 100, 200, 400)  # in per cent
SEEDS = 5  # of the loss curves
MOVED_MS = 0.5  # limit of the overhead of a moved micro-batch

NEAR_IDEAL = Bar(what="step", of="ideal", bar=1.10)


def turns_of(
    training: Training, context: Context, *, turns: int, arms: Sequence[str] = ARMS
) -> Turns:
    return Turns(runs.run(in_turns(training, turns=turns, arms=arms), context))


def beside_ideal(case: Case, turns: Turns, number: int = 0) -> Row:
    """The row of the time of a step beside the ideal, with the figures of all arms."""
    over = turns.median(REASSIGN, lambda record: record.over_ideal)
    value = 1e3 * turns.median(REASSIGN, lambda record: record.step_s)
    return case.judge(number, value=value, reference=value / over, **turns.details())


def near_ideal(
    training: Training, case: Case, context: Context, *, turns: tuple[int, int]
) -> list[Row]:
    count = context.pick(*turns)
    return [beside_ideal(case, turns_of(training, context, turns=count))]


def lengths(training: Training, case: Case, context: Context) -> list[Row]:
    turns = turns_of(training, context, turns=context.pick(3, 9))
    over = turns.over(REASSIGN, PREDICTED)
    value = 1e3 * turns.median(REASSIGN, lambda record: record.step_s)
    return [
        beside_ideal(case, turns),
        case.judge(1, value=value, reference=value / over),
    ]


def nobody(training: Training, case: Case, context: Context) -> list[Row]:
    turns = turns_of(training, context, turns=context.pick(5, 15))
    over = turns.over(REASSIGN, DDP)
    value = 1e3 * turns.median(REASSIGN, lambda record: record.step_s)
    moved = sum(record.moved for record in turns.of(REASSIGN))
    return [
        case.judge(0, value=value, reference=value / over, **turns.details()),
        case.judge(1, value=moved, reference=0.0),
    ]


def moved_item(training: Training, case: Case, context: Context) -> list[Row]:
    turns = turns_of(training, context, turns=context.pick(3, 9), arms=(DDP, REASSIGN))
    overhead = turns.overhead_ms(REASSIGN)
    return [case.judge(0, value=overhead, reference=MOVED_MS, **turns.details())]


def text(training: Training, case: Case, context: Context) -> list[Row]:
    """One rank at half speed in the arms, and nobody slow in the undisturbed runs."""
    disturbed = in_turns(training, turns=SEEDS)
    undisturbed = [
        dataclasses.replace(each, disruption="none")
        for each in in_turns(training, turns=SEEDS, arms=(DDP,))
    ]
    found = runs.run(disturbed + undisturbed, context)
    turns = Turns(found[: len(disturbed)])
    distance = distance_of_curves(
        [record.losses for record in turns.of(REASSIGN)],
        [record.losses for record in found[len(disturbed) :]],
    )
    return [
        beside_ideal(case, turns),
        case.judge(1, value=distance, reference=1.0),
    ]


def cases(num_ranks: int) -> list[Case]:
    """The cases for a number of ranks."""
    usual = Training(
        arm=DDP, num_ranks=num_ranks, items=ITEMS, item_ms=ITEM_MS, steps=8
    )
    half = dataclasses.replace(usual, disruption="one", slower=1.0)
    return [
        *_slow(usual),
        _lengths(usual),
        _nobody(usual),
        *(_moved(half, item_ms, steps) for item_ms, steps in ((5, 40), (50, 10))),
        _text(half),
    ]


def _slow(usual: Training) -> list[Case]:
    change = functools.partial(dataclasses.replace, usual)
    moving = change(disruption="moving", slower=1.0, steps=3 * MOVES_EVERY - 2)
    found = [
        (
            *(f"slower-{per_cent}", f"one rank is slower by {per_cent} %"),
            *(change(disruption="one", slower=per_cent / 100), (3, 9)),
        )
        for per_cent in SLOWER
    ]
    found += [
        (
            *("moving", f"a rank at half speed, another one every {MOVES_EVERY} steps"),
            *(moving, (1, 5)),
        ),
        (
            "power-law",
            "each rank is slow at times; length and slowness have a power law",
            *(change(disruption="power-law", steps=30), (2, 8)),
        ),
    ]
    return [
        Case(
            name=name,
            what=what,
            bars=(NEAR_IDEAL,),
            measure=functools.partial(near_ideal, training, turns=turns),
        )
        for name, what, training, turns in found
    ]


def _lengths(usual: Training) -> Case:
    # With few micro-batches the longest one alone may take longer than the ideal step.
    items = 8 if usual.num_ranks <= 4 else 12
    training = dataclasses.replace(
        usual, items=items, item_ms=2 * ITEM_MS, sigma=1.0, wrong=0.3, steps=30
    )
    beside = Bar(what="step beside prediction", of=PREDICTED, bar=0.90)
    return Case(
        name="lengths",
        what="log-normal work (sigma 1), prediction wrong by 30 %",
        bars=(dataclasses.replace(NEAR_IDEAL, bar=1.08), beside),
        measure=functools.partial(lengths, training),
    )


def _nobody(usual: Training) -> Case:
    return Case(
        name="nobody-slow",
        what="nobody is slow",
        bars=(
            Bar(what="step", of=DDP, bar=1.01),
            Bar(what="moved micro-batches", of="none", bar=1.0, unit=""),
        ),
        measure=functools.partial(nobody, dataclasses.replace(usual, steps=10)),
    )


def _moved(half: Training, item_ms: int, steps: int) -> Case:
    training = dataclasses.replace(half, items=8, item_ms=item_ms, steps=steps)
    bar = Bar(what="overhead of a moved micro-batch", of=f"{MOVED_MS} ms", bar=1.0)
    return Case(
        name=f"moved-{item_ms}",
        what=f"one rank at half speed, 8 micro-batches of {item_ms} ms",
        bars=(bar,),
        measure=functools.partial(moved_item, training),
    )


def _text(half: Training) -> Case:
    distance = Bar(
        what="largest distance of the loss to the undisturbed one",
        of="its noise over the seeds",
        bar=1.0,
        unit="",
    )
    training = dataclasses.replace(half, task="text", samples=2, steps=18)
    return Case(
        name="text",
        what="characters of the text; one rank at half speed",
        bars=(NEAR_IDEAL, distance),
        measure=functools.partial(text, training),
    )
