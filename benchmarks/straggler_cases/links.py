# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Cases in which a link is slow, becomes slow or is shared; and without a slow link."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from benchmarks.common import Samples
from benchmarks.lab import Lab, on_off_flows
from benchmarks.straggler_cases import records, runs
from benchmarks.straggler_cases.case import Bar, Case, Context, Row
from benchmarks.straggler_cases.plan import (
    BAD,
    MBIT,
    NUM_RANKS,
    Action,
    Block,
    interleaved,
)
from benchmarks.straggler_cases.runs import Record

SLOW_MBIT = 20.0
GAP_S = 0.2
REST = (0, 1, 2)
LEARNING = 8  # operations of each group before the first slow link
SETTLING = 6  # operations after a change before a state is steady
RECOVERY_S = 5.0
KIB = 1 << 10
PAIR = ("strict", "strict3")  # 4 and 3 healthy ranks
PACES = {"back to back": 0.0, "with computation": GAP_S}


def measure(
    lab: Lab | None,
    blocks: Sequence[Block],
    context: Context,
    *,
    compares_bits: bool = True,
    **options: Any,
) -> list[Record]:
    """Runs the blocks and reports progress; results must be bitwise equal."""
    total = sum(block.ops for block in blocks)
    before = [sum(b.ops for b in blocks[:i]) for i in range(len(blocks) + 1)]
    found = runs.run(
        lab,
        blocks,
        on_progress=lambda block, ops: context.on_progress(
            (before[block] + ops) / total
        ),
        **options,
    )
    for record in found:
        context.on_record(record.facts())
    if compares_bits:
        records.check_bits(found)
    return found


def learning(arms: Sequence[str]) -> list[Block]:
    """Healthy operations of each arm, before the first measured block."""
    return [Block(name="learning", arm=arm, ops=LEARNING, settle_s=0.0) for arm in arms]


def spreads(**samples: Samples) -> dict[str, float]:
    return {f"{name}_spread": round(s.spread, 4) for name, s in samples.items()}


def slow_uplink(case: Case, context: Context) -> list[Row]:
    ops, repeats = context.pick(8, 30), context.pick(2, 4)
    blocks = learning(("skip", "strict", "strict3"))
    for pace, gap_s in PACES.items():
        healthy = [
            Block(name=f"{arm}, {pace}", arm=arm, ops=n, warm_up=1, gap_s=gap_s)
            for arm, n in (("strict", ops), ("strict3", ops), ("gloo", 4))
        ]
        slow = [
            Block(
                name=f"{arm} slow, {pace}",
                arm=arm,
                ops=settling + n,
                warm_up=settling,
                gap_s=gap_s,
                links={BAD: (SLOW_MBIT, MBIT)},
                healthy=REST,
                actions=(Action(do="link", at_op=settling + n),),
            )
            for arm, settling, n in (("skip", SETTLING, ops), ("gloo", 0, 1))
        ]
        blocks += interleaved([*healthy, *slow], repeats)
    with runs.lab_of() as lab:
        found = measure(lab, blocks, context)
    rows = []
    for number, pace in enumerate(PACES):
        ours = records.samples(found, f"skip slow, {pace}")
        four, three = (records.samples(found, f"{a}, {pace}") for a in PAIR)
        reference = four if number == 0 else three
        rows.append(
            case.judge(
                number,
                value=ours.median,
                reference=reference.median,
                gloo=records.samples(found, f"gloo slow, {pace}").median,
                note=f"mean {records.mean(ours.values):.4g} ms; "
                f"{ours.median / four.median:.3f} of 4 healthy ranks, "
                f"{ours.median / three.median:.3f} of 3; "
                + records.evidence(records.named(found, f"skip slow, {pace}")),
                p95=ours.p95,
                **spreads(ours=ours, healthy=reference),
                samples=[round(v, 2) for v in ours.values],
            )
        )
    return rows


def slow_link(case: Case, context: Context) -> list[Row]:
    ops, repeats = context.pick(10, 24), context.pick(1, 3)
    tail = 34  # Operations, at least 5 s of them
    blocks = learning(("skip", "strict3"))
    for pace, gap_s in PACES.items():
        healthy = [
            Block(name=f"{arm}, {pace}", arm=arm, ops=n, warm_up=1, gap_s=gap_s)
            for arm, n in (("strict3", ops), ("gloo3", 4))
        ]
        bad = {BAD: (SLOW_MBIT, SLOW_MBIT)}
        restore = Action(do="link", at_op=SETTLING + ops)
        slow = [
            Block(
                name=f"skip slow, {pace}",
                arm="skip",
                ops=SETTLING + ops + tail,
                warm_up=SETTLING,
                gap_s=gap_s,
                links=bad,
                healthy=REST,
                actions=(restore,),
            ),
            Block(
                name=f"gloo slow, {pace}",
                arm="gloo",
                ops=1,
                gap_s=gap_s,
                links=bad,
                healthy=REST,
            ),
        ]
        blocks += interleaved([*healthy, *slow], repeats)
    with runs.lab_of() as lab:
        found = measure(lab, blocks, context)
    rows = []
    for number, pace in enumerate(PACES):
        slow = records.named(found, f"skip slow, {pace}")
        times = [t for r in slow for t in records.op_times(r, end=SETTLING + ops)]
        three = records.samples(found, f"strict3, {pace}")
        rows.append(
            case.judge(
                number,
                value=records.median(times),
                reference=three.median,
                gloo=records.samples(found, f"gloo slow, {pace}").median,
                note=f"mean {records.mean(times):.4g} ms; {records.evidence(slow)}",
                samples=[round(t, 2) for t in times],
                **spreads(healthy=three),
            )
        )
        rows.append(_behind(case, pace, slow))
    return rows


def _behind(case: Case, pace: str, slow: list[Record]) -> Row:
    """Distance of the slow rank some time after its link has recovered."""
    behind, at_first = [], []
    for record in slow:
        healed = records.moment_of(record, "link")
        for moments, later in ((at_first, 0.0), (behind, RECOVERY_S)):
            most = max(records.position(record, rank, healed + later) for rank in REST)
            moments.append(most - records.position(record, BAD, healed + later))
    return case.show(
        f"operations behind {RECOVERY_S:g} s after, {pace}",
        value=max(behind),
        unit="ops",
        note=f"{max(at_first)} behind when its link was well again",
    )


def first_operations(case: Case, context: Context) -> list[Row]:
    repeats, before, after = context.pick(1, 4), 14, context.pick(12, 24)
    ways = {"uplink": (SLOW_MBIT, MBIT), "both ways": (SLOW_MBIT, SLOW_MBIT)}
    blocks = []
    for way, (up, down) in ways.items():
        for arm, late in (("skip", after), ("gloo", 3)):
            bad = Action(
                do="link", at_op=before, after_s=0.1, up_mbit=up, down_mbit=down
            )
            well = Action(do="link", at_op=before + late)
            blocks.append(
                Block(
                    name=f"{arm}, {way}",
                    arm=arm,
                    ops=before + late,
                    warm_up=2,
                    healthy=REST,
                    actions=(bad, well),
                    fresh=arm == "skip",
                )
            )
    with runs.lab_of() as lab:
        found = measure(lab, interleaved(blocks, repeats), context)
    rows = []
    for number, way in enumerate(ways):
        sums, healthy_ops, first = [], [], []
        for record in records.named(found, f"skip, {way}"):
            healthy = records.median(records.op_times(record, end=before))
            times = records.op_times(record, begin=before)
            sums.append(records.excess(times, healthy))
            healthy_ops.append(healthy)
            first = times
        gloo = [
            records.excess(
                records.op_times(r, begin=before),
                records.median(records.op_times(r, end=before)),
            )
            for r in records.named(found, f"gloo, {way}")
        ]
        shown = " ".join(f"{t:.0f}" for t in first[:8])
        rows.append(
            case.judge(
                number,
                value=records.median(sums),
                reference=records.median(healthy_ops),
                gloo=records.median(gloo),
                note=f"in {after} operations, Gloo's in 3; ms of the first: {shown}; "
                + records.evidence(records.named(found, f"skip, {way}")),
                samples=[round(s, 1) for s in sums],
            )
        )
    return rows


def cross_traffic(case: Case, context: Context) -> list[Row]:
    ops, repeats = context.pick(30, 60), context.pick(1, 4)
    # Three sources of streams in the queue of one uplink. Their target has a link
    # without limits, so only that uplink is shared.
    flows = tuple(
        Action(do="flow", after_s=e.at_s, to=e.to, for_s=e.for_s or 0.0)
        for flow in range(3)
        for e in on_off_flows(
            BAD, NUM_RANKS, seed=context.seed + flow, until_s=0.3 * ops * 2
        )
    )
    blocks = learning(("skip", "strict")) + interleaved(
        [
            Block(name="healthy", arm="strict", ops=ops // 2, warm_up=1),
            Block(name="ours", arm="skip", ops=ops, healthy=REST, actions=flows),
            Block(name="healthy gloo", arm="gloo", ops=4, warm_up=1),
            Block(name="gloo", arm="gloo", ops=ops // 3, healthy=REST, actions=flows),
        ],
        repeats,
    )
    with runs.lab_of(spare=1) as lab:
        found = measure(lab, blocks, context)
    ours, healthy = (records.samples(found, name) for name in ("ours", "healthy"))
    return [
        case.judge(
            0,
            value=records.mean(ours.values),
            reference=records.mean(healthy.values),
            gloo=records.mean(records.samples(found, "gloo").values),
            note=f"p95 {ours.p95:.4g} ms; "
            + records.evidence(records.named(found, "ours")),
            samples=[round(v, 1) for v in ours.values],
            **spreads(ours=ours, healthy=healthy),
        )
    ]


def no_straggler(case: Case, context: Context) -> list[Row]:
    ops, repeats = context.pick(8, 15), context.pick(4, 8)
    blocks = learning(("skip", "strict"))
    for pace, gap_s in PACES.items():
        pair = [
            Block(name=f"{arm}, {pace}", arm=arm, ops=n, warm_up=1, gap_s=gap_s)
            for arm, n in (("strict", ops), ("skip", ops), ("gloo", 4))
        ]
        # A B, B A: neither always follows the other.
        turned = [dataclasses.replace(block) for block in (pair[1], pair[0], pair[2])]
        blocks += interleaved([*pair, *turned], repeats // 2)
    with runs.lab_of() as lab:
        found = measure(lab, blocks, context)
    rows = []
    for number, pace in enumerate(PACES):
        ours, strict = (
            records.samples(found, f"{arm}, {pace}") for arm in ("skip", "strict")
        )
        rows.append(
            case.judge(
                number,
                value=ours.median,
                reference=strict.median,
                gloo=records.samples(found, f"gloo, {pace}").median,
                note=records.evidence(records.named(found, f"skip, {pace}")),
                **spreads(ours=ours, strict=strict),
            )
        )
    return rows


def all_slow(case: Case, context: Context) -> list[Row]:
    ops, num_bytes = 1000, context.pick(64 * KIB, 256 * KIB)
    changes = [
        Action(do="link", target=host, at_op=at_op, up_mbit=mbit)
        for at_op, mbit in ((200, 50.0), (400, MBIT), (600, 50.0), (800, MBIT))
        for host in range(NUM_RANKS)
    ]
    block = Block(
        name="ours",
        arm="skip",
        ops=ops,
        num_bytes=num_bytes,
        warm_up=50,
        actions=tuple(changes),
    )
    with runs.lab_of() as lab:
        (found,) = measure(lab, [block], context)
    slow = records.op_times(found, begin=220, end=400)
    well = records.op_times(found, begin=50, end=200)
    return [
        case.judge(
            0,
            value=records.num_skipped(found),
            reference=0.0,
            note=f"{num_bytes // KIB} KiB; median {records.median(well):.3g} ms, slow "
            f"{records.median(slow):.3g} ms; {records.evidence([found])}",
            skipped_operations=sorted(
                {int(op) for r in found.by_rank.values() for op in r["skipped"]}
            ),
        )
    ]


CASES = [
    Case(
        name="slow-uplink",
        what="one uplink at 20 of 200 Mbit/s, steady state of the healthy ranks",
        bars=(
            Bar(what="median op, back to back", of="4 healthy ranks", bar=1.10),
            Bar(what="median op, with computation", of="3 healthy ranks", bar=1.08),
        ),
        measure=slow_uplink,
    ),
    Case(
        name="slow-link",
        what="one link at 20 of 200 Mbit/s both ways, steady state",
        bars=tuple(
            Bar(what=f"median op, {pace}", of="3 healthy ranks", bar=1.08)
            for pace in PACES
        ),
        measure=slow_link,
    ),
    Case(
        name="first-operations",
        what="a link turns bad in mid-run: the sum of what is lost until all is steady",
        bars=tuple(
            Bar(what=f"excess, {way}", of="a healthy operation", bar=3.0)
            for way in ("uplink", "both ways")
        ),
        measure=first_operations,
    ),
    Case(
        name="cross-traffic",
        what="three on/off flows in the queue of one uplink",
        bars=(Bar(what="mean op", of="4 healthy ranks", bar=1.12),),
        measure=cross_traffic,
    ),
    Case(
        name="no-straggler",
        what="nothing is wrong: SkipStraggler beside the strict allreduce",
        # 1.00, and 1 % for noise.
        bars=tuple(
            Bar(what=f"median op, {pace}", of="strict aikido", bar=1.01)
            for pace in PACES
        ),
        measure=no_straggler,
    ),
    Case(
        name="all-slow",
        what="all uplinks become slow together and well again, 1,000 operations",
        bars=(Bar(what="operations that skip", of="none", bar=1.0, unit="ops"),),
        measure=all_slow,
    ),
]
