# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Cases in which ranks die or fall silent, and counts of forbidden events."""

import random
from collections.abc import Sequence
from typing import Any

from benchmarks.lab import Lab
from benchmarks.straggler_cases import records, runs
from benchmarks.straggler_cases.case import Bar, Case, CaseError, Context, Row
from benchmarks.straggler_cases.links import KIB, LEARNING, REST, learning, measure
from benchmarks.straggler_cases.plan import (
    BAD,
    MBIT,
    NUM_RANKS,
    Action,
    Block,
    bound_s,
    interleaved,
    late_in_share,
)
from benchmarks.straggler_cases.runs import Record

GRACE_MS = 300.0
SILENT_S = 2.5
HEARTBEAT_MS = 5000  # longer than a silence, and shorter than the case


# ---- kill --------------------------------------------------------------------------


def kill(case: Case, context: Context) -> list[Row]:
    """One run per death, each at another moment of its operation."""
    seeds = range(context.seed, context.seed + context.pick(3, 50))
    spent, bounds, after, three, errors = [], [], [], [], []
    for number, seed in enumerate(seeds):
        victim = 1 + seed % (NUM_RANKS - 1)  # rank 0 has the rendezvous store
        try:
            with runs.lab_of() as lab:
                found = _die(lab, victim, seed, context)
            last = found[-1]
            moment = records.moment_of(last, "kill")
            before = records.op_times(last, end=LEARNING)
            op = min(records.position(last, r, moment) for r in last.block.healthy)
            times = records.op_times(last, begin=op)
            spent.append(times[0])
            bounds.append(records.median(before) + GRACE_MS)
            after.append(records.median(times[1:]))
            three.append(records.median(records.op_times(found[1])))
        except CaseError as error:
            errors.append(f"seed {seed}: {error}")
        context.on_progress((number + 1) / len(seeds))
    rows = [
        case.judge(
            0,
            value=len(errors),
            reference=0.0,
            note=f"of {len(seeds)}; {errors[0] if errors else 'all bits equal'}",
        )
    ]
    if not spent:
        none = CaseError("no operation outlived a death")
        return [*rows, case.failed_row(1, none), case.failed_row(2, none)]
    worst = max(range(len(spent)), key=lambda i: spent[i] - bounds[i])
    shown = " ".join(f"{ms:.0f}" for ms in spent)
    return [
        *rows,
        case.judge(1, value=spent[worst], reference=bounds[worst], note=f"ms: {shown}"),
        case.judge(2, value=records.median(after), reference=records.median(three)),
    ]


def _die(lab: Lab, victim: int, seed: int, context: Context) -> list[Record]:
    draw, at_op = random.Random(seed), LEARNING + 2
    found = runs.run(
        lab,
        [
            *learning(("skip",)),
            Block(name="three", arm="strict3", ops=5, warm_up=1),
            Block(
                name="kill",
                arm="skip",
                ops=at_op + 10,
                healthy=tuple(r for r in range(NUM_RANKS) if r != victim),
                actions=(
                    Action(
                        do="kill",
                        target=victim,
                        at_op=at_op,
                        after_s=draw.uniform(0.0, bound_s(4 * KIB * KIB, NUM_RANKS)),
                    ),
                ),
                may_fail=True,
                is_checked=True,
            ),
        ],
        may_die=(victim,),
    )
    for record in found:
        context.on_record(record.facts())
    for rank, seen in found[-1].by_rank.items():
        if rank != victim and seen["error"]:
            raise CaseError(f"rank {rank}: {seen['error']}")
    found[-1].by_rank.pop(victim, None)
    records.check_bits(found)
    return found


# ---- silent ------------------------------------------------------------------------


SILENT_OP = 10  # operation in which it begins; Gloo's blocks are shorter
SILENT_OP_GLOO = 2


def silent_blocks() -> list[Block]:
    """A late rank, a stopped rank and a disconnected rank, for the same time."""
    after = round(SILENT_S / bound_s(4 * KIB * KIB, 3)) + 6

    def block(
        name: str, arm: str, at_op: int, ops: int, *ends: str, **options: Any
    ) -> Block:
        moments = (0.05, 0.05 + SILENT_S)
        return Block(
            name=f"{arm} {name}",
            arm=arm,
            ops=ops,
            warm_up=2,
            healthy=REST,
            actions=tuple(
                Action(do=do, at_op=at_op, after_s=after_s)
                for do, after_s in zip(ends, moments, strict=False)
            ),
            fresh=arm == "skip",
            settle_s=1.0,
            **options,
        )

    ops = SILENT_OP + after
    pauses = [SILENT_S if op == SILENT_OP else 0.0 for op in range(ops)]
    blocks = [block("late", "skip", SILENT_OP, ops, pauses={BAD: pauses})]
    for name, ends in (("stop", ("stop", "continue")), ("cut", ("cut", "heal"))):
        blocks += [
            block(name, "skip", SILENT_OP, ops, *ends),
            block(name, "gloo", SILENT_OP_GLOO, SILENT_OP_GLOO + 3, *ends),
        ]
    return blocks


def silent(case: Case, context: Context) -> list[Row]:
    named = Block(
        name="strict",
        arm="strict",
        ops=6,
        healthy=REST,
        actions=(
            Action(do="stop", at_op=2, after_s=0.05),
            Action(do="continue", at_op=2, after_s=2e-3 * HEARTBEAT_MS),
        ),
        may_fail=True,
    )
    with runs.lab_of() as lab:
        found = measure(
            lab,
            [*interleaved(silent_blocks(), context.pick(1, 4)), named],
            context,
            env={"AIKIDO_HEARTBEAT_TIMEOUT_MS": str(HEARTBEAT_MS)},
        )

    def cost(name: str, begin: int = SILENT_OP) -> float:
        return records.median(
            [
                records.excess(
                    records.op_times(record, begin=begin),
                    records.median(records.op_times(record, begin=0, end=begin)),
                )
                for record in records.named(found, name)
            ]
        )

    rows = []
    for number, name in enumerate(("stop", "cut")):
        blocks = records.named(found, f"skip {name}")
        first = records.op_times(blocks[0], begin=SILENT_OP)[:6]
        rows.append(
            case.judge(
                number,
                value=cost(f"skip {name}"),
                reference=cost("skip late"),
                gloo=cost(f"gloo {name}", SILENT_OP_GLOO),
                note="ms of the first: "
                + " ".join(f"{ms:.0f}" for ms in first)
                + f"; {records.evidence(blocks)}",
            )
        )
    return [*rows, _who_named_it(case, found[-1])]


def _who_named_it(case: Case, record: Record) -> Row:
    stopped = records.moment_of(record, "stop")
    errors = [record.by_rank[rank]["error"] or "no error" for rank in REST]
    times = [record.by_rank[rank]["error_s"] or stopped for rank in REST]
    return case.judge(
        2,
        value=sum(f"rank {BAD}" not in text for text in errors),
        reference=0.0,
        note=f"after {max(times) - stopped:.2f} s (heartbeats are missed after "
        f"{HEARTBEAT_MS / 1e3:g} s): {errors[0]}",
    )


# ---- counts ------------------------------------------------------------------------


def random_faults(steps: int, *, seed: int, every: int) -> tuple[Action, ...]:
    """Temporary slow links and stopped ranks, about one in every `every` steps."""
    draw, actions = random.Random(seed), []
    for at_op in range(every, steps - every, every):
        target, length = draw.randrange(NUM_RANKS), draw.uniform(0.1, 1.0)
        if draw.random() < 0.5:
            up, down = (draw.choice((5.0, 20.0, MBIT)) for _ in range(2))
            both = (
                Action(
                    do="link", target=target, at_op=at_op, up_mbit=up, down_mbit=down
                ),
                Action(do="link", target=target, at_op=at_op, after_s=length),
            )
        else:
            both = (
                Action(do="stop", target=target, at_op=at_op),
                Action(do="continue", target=target, at_op=at_op, after_s=length),
            )
        actions += both
    return tuple(actions)


def consistency(case: Case, context: Context) -> list[Row]:
    steps, check_every = context.pick(400, 10_000), 100
    block = Block(
        name="ours",
        arm="skip",
        ops=steps,
        num_bytes=64 * KIB,
        gap_s=0.005,
        pauses={
            rank: [
                0.005 + late
                for late in late_in_share(
                    steps, share=0.03, seconds=0.2, seed=context.seed * NUM_RANKS + rank
                )
            ]
            for rank in range(NUM_RANKS)
        },
        actions=random_faults(steps, seed=context.seed, every=30),
        check_every=check_every,
    )
    with runs.lab_of() as lab:
        (found,) = measure(
            lab, [block], context, program=runs.STEP_RANK, compares_bits=False
        )
    sums = [found.by_rank[rank]["sums"] for rank in range(NUM_RANKS)]
    replayed = sum(seen["replayed"] for seen in found.by_rank.values())
    return [
        case.judge(
            0,
            value=num_different(sums, steps // check_every),
            reference=0.0,
            note=f"of {steps // check_every}; {len(found.done)} faults done, "
            f"{replayed} steps replayed; {records.evidence([found])}",
        )
    ]


def num_different(sums: Sequence[Sequence[int]], num_checks: int) -> int:
    """Checks that are missing on a rank, or differ between ranks."""
    return sum(
        any(len(own) <= i for own in sums) or len({own[i] for own in sums}) > 1
        for i in range(num_checks)
    )


def healthy_small(case: Case, context: Context) -> list[Row]:
    ops = context.pick(20_000, 100_000)
    allowed = 10 * ops / 100_000
    blocks = interleaved(
        [
            Block(name="ours", arm="skip", ops=ops // 4, num_bytes=4 * KIB),
            Block(name="strict", arm="strict", ops=ops // 20, num_bytes=4 * KIB),
            Block(name="gloo", arm="gloo", ops=ops // 20, num_bytes=4 * KIB),
        ],
        4,
    )
    found = measure(None, blocks, context)
    ours = records.named(found, "ours")
    medians = {
        name: records.samples(found, name).median for name in ("ours", "strict", "gloo")
    }
    shown = ", ".join(f"{name} {ms:.3g}" for name, ms in medians.items())
    return [
        case.judge(
            0,
            value=sum(records.num_skipped(r) for r in ours),
            reference=allowed,
            note=f"in {ops} operations; median ms: {shown}; {records.evidence(ours)}",
            **{f"{name}_ms": ms for name, ms in medians.items()},
        )
    ]


CASES = [
    Case(
        name="healthy-small",
        what="100,000 operations of 4 KiB on loopback, nobody is late",
        bars=(
            Bar(
                what="operations that skip",
                of="10 per 100,000",
                bar=1.0,
                unit="ops",
            ),
        ),
        measure=healthy_small,
    ),
    Case(
        name="consistency",
        what="training with random late ranks, slow links and stops",
        bars=(
            Bar(what="checks in which parameters differ", of="none", bar=1.0, unit=""),
        ),
        measure=consistency,
    ),
    Case(
        name="kill",
        what="kill -9 of one rank in the middle of an operation",
        bars=(
            Bar(
                what="deaths that survivors do not outlive", of="none", bar=1.0, unit=""
            ),
            Bar(what="the operation, worst", of="healthy + 300 ms", bar=1.0),
            Bar(what="median op after it", of="3 healthy ranks", bar=1.08),
        ),
        measure=kill,
    ),
    Case(
        name="silent",
        what=f"a rank is stopped, or its link cut, for {SILENT_S:g} s",
        bars=(
            Bar(what="excess, stopped", of="that of a late rank", bar=1.0),
            Bar(what="excess, cut off", of="that of a late rank", bar=1.0),
            Bar(
                what="strict: survivors that do not name it",
                of="none",
                bar=1.0,
                unit="",
            ),
        ),
        measure=silent,
    ),
]
