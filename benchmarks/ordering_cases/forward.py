# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Forward passes whose parameters arrive over the link: the gain of TAC's order.

The setting of TicTac, with an allreduce in place of each receive: 32 parameters of 2
MiB, of layers in a row or side by side. All transfers are requested at once, in a
random order, with the place of each in TAC's order as its priority.
"""

import dataclasses
import functools
import json
import random
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aikido_torch import _C, ordering
from benchmarks.lab import Lab, Link, Program
from benchmarks.launch import RanksFailedError
from benchmarks.straggler_cases.case import Bar, Case, CaseError, Context, Row
from benchmarks.straggler_cases.runs import first_line

PROGRAM = Path(__file__).resolve().with_name("forward_rank.py")
NUM_HOSTS = 2
MBIT = 500.0
QUEUE_MS = 10.0
GOODPUT = 0.955
COUNT, NUM_BYTES = 32, 2 << 20
RATIOS = (0.5, 1.0, 2.0)  # ratios of communication to computation


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One forward pass.

    Attributes:
        shape: shape of the model.
        calls: numbers of the transfers, in the order of the requests.
        order: numbers of the transfers, in the order of their priorities.
        compute_ms: computation of each layer.
    """

    shape: str  # "chain", "parallel", or "alone": transfers without computation
    calls: list[int]
    order: list[int]
    compute_ms: list[float]


def graph_of(shape: str, compute_ms: list[float], transfer_s: float) -> Any:
    """Graph in which layer i needs transfer i; a chain's layers need the one before."""
    ops = [
        _C.Op.transfer(f"p{i}", time_s=transfer_s, bytes=NUM_BYTES)
        for i in range(COUNT)
    ]
    ops += [
        _C.Op.compute(f"layer {i}", time_s=ms / 1e3) for i, ms in enumerate(compute_ms)
    ]
    edges = [(f"p{i}", f"layer {i}") for i in range(COUNT)]
    if shape == "chain":
        edges += [(f"layer {i}", f"layer {i + 1}") for i in range(COUNT - 1)]
    return _C.OpGraph(ops, edges)


def compute_of(shape: str, total_ms: float, draw: random.Random) -> list[float]:
    """Equal times in a chain; unequal ones side by side, where the order matters."""
    shares = [1.0] * COUNT
    if shape == "parallel":
        shares = [draw.uniform(0.2, 1.8) for _ in range(COUNT)]
    return [total_ms * share / sum(shares) for share in shares]


def turns_of(shape: str, ratio: float, repeats: int, seed: int) -> list[Turn]:
    draw = random.Random(f"{seed} {shape} {ratio}")
    share = 2 * (NUM_HOSTS - 1) / NUM_HOSTS
    transfer_s = share * NUM_BYTES * 8e-6 / MBIT / GOODPUT
    compute = compute_of(shape, 1e3 * COUNT * transfer_s / ratio, draw)
    tac = ordering.tac(graph_of(shape, compute, transfer_s)).transfers
    order = [int(name.removeprefix("p")) for name in tac]
    turns = []
    for _ in range(repeats):
        calls = draw.sample(range(COUNT), COUNT)
        turn = Turn(shape=shape, calls=calls, order=order, compute_ms=compute)
        turns += [dataclasses.replace(turn, shape="alone"), turn]
    return turns


def run(turns: list[Turn], context: Context) -> list[float]:
    """Seconds of each turn, from the last rank's begin to the last rank's end."""
    seen: list[list[tuple[float, float]]] = [[] for _ in turns]

    def on_event(_: int, event: dict[str, Any]) -> None:
        seen[event["turn"]].append((event["begin"], event["end"]))
        context.on_progress((event["turn"] + 1) / len(turns))

    rows = [dataclasses.asdict(turn) for turn in turns]
    argument = json.dumps({"turns": rows, "num_bytes": NUM_BYTES})
    link = Link(up_mbit=MBIT, down_mbit=MBIT, queue_ms=QUEUE_MS)
    with Lab([link] * NUM_HOSTS) as lab:
        try:
            lab.run(
                Program(PROGRAM, (argument,)),
                deadline_s=60 + 8.0 * len(turns),
                on_event=on_event,
            )
        except RanksFailedError as error:
            raise CaseError(first_line(str(error))) from error
    context.on_record({"turns": rows, "seen": seen})
    return [max(e for _, e in at) - max(b for b, _ in at) for at in seen]


def forward(case: Case, context: Context, *, shape: str, ratio: float) -> list[Row]:
    turns = turns_of(shape, ratio, 1 + context.pick(3, 9), context.seed)
    seconds = run(turns, context)[2:]  # the first turn of each connects and learns
    alone = statistics.median(seconds[0::2])
    measured = statistics.median(seconds[1::2])
    graph = graph_of(shape, turns[-1].compute_ms, alone / COUNT)
    order = [f"p{number}" for number in turns[-1].order]
    simulated = ordering.simulate(graph, order, link="preemptive").makespan_s
    bounds = ordering.bounds(graph)
    off = max(measured, simulated) / min(measured, simulated)
    return [
        case.judge(
            0,
            value=bounds.efficiency(measured),
            reference=bounds.efficiency(simulated),
            note=f"transfers alone {1e3 * alone:.0f} ms, computing "
            f"{1e3 * bounds.computation_s:.0f} ms",
        ),
        case.judge(
            1,
            value=1e3 * simulated * off,
            reference=1e3 * simulated,
            note=f"measured {1e3 * measured:.0f} ms, simulated {1e3 * simulated:.0f} "
            "ms",
        ),
    ]


CASES = [
    Case(
        name=f"{shape}-{ratio:g}",
        what=f"{COUNT} x 2 MiB, layers {how}, {MBIT:g} Mbit/s, communication / "
        f"computing {ratio:g}",
        bars=(
            Bar(
                what="efficiency of TAC",
                # TAC's order is the best for these graphs (csrc/ordering/README.md).
                of="the best order's",
                bar=0.95,
                unit="E",
                better="higher",
            ),
            Bar(what="forward, off by", of="the simulator's", bar=1.05),
        ),
        measure=functools.partial(forward, shape=shape, ratio=ratio),
    )
    for shape, how in (("chain", "in a row"), ("parallel", "side by side"))
    for ratio in RATIOS
]
