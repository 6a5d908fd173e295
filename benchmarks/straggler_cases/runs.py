# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Runner of the ranks of a case; changes links during the run, and collects
observations.

For the main thread.
"""

import contextlib
import functools
import json
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.lab import Lab, Link, Program
from benchmarks.launch import RanksFailedError
from benchmarks.local_ranks import run_ranks
from benchmarks.straggler_cases import plan
from benchmarks.straggler_cases.case import CaseError
from benchmarks.straggler_cases.meeting import Host
from benchmarks.straggler_cases.plan import Action, Block

HERE = Path(__file__).resolve().parent
OP_RANK, STEP_RANK = "op_rank.py", "step_rank.py"
_SIGNALS = {"stop": signal.SIGSTOP, "continue": signal.SIGCONT, "kill": signal.SIGKILL}


@dataclass
class Record:
    """One block as observed by all ranks. Times are by the machine's clock."""

    block: Block
    started: float = 0.0
    by_rank: dict[int, dict[str, Any]] = field(default_factory=dict)
    # The executed actions.
    done: list[tuple[float, Action]] = field(default_factory=list)

    def facts(self) -> dict[str, Any]:
        return {
            "block": plan.facts(self.block),
            "started": self.started,
            "done": [(moment, asdict(action)) for moment, action in self.done],
            "by_rank": self.by_rank,
        }


class Stage:
    """The links of a run and the actions on them, driven by the ranks' meetings."""

    def __init__(self, lab: Lab | None, records: list[Record]):
        self._lab = lab
        self._records = records
        self._now_at: int | None = None  # the running block
        self._last_step = 0.0
        self._stopped: set[int] = set()
        self._links: list[tuple[float, float]] = []
        self._cut: set[int] = set()
        self.host: Host | None = None

    def met(self, key: list[Any], values: dict[int, Any]) -> float:
        what, number = key
        if what == "block":
            return self._begin(number)
        if what == "end":
            assert self.host is not None
            self.host.forget()
            self._now_at = None
            return 0.0
        assert self._now_at is not None
        step_s = self._records[self._now_at].block.step_s or 0.0
        now = time.monotonic()
        self._last_step = max(self._last_step + step_s, now) if number else now + 0.01
        return self._last_step

    def told(self, rank: int, message: dict[str, Any]) -> None:
        if self._now_at is None:
            return
        record = self._records[self._now_at]
        for action in record.block.actions:
            if action.at_op == message["reached"]:
                self._plan(record, action, time.monotonic())

    def _begin(self, index: int) -> float:
        record = self._records[index]
        self._set_links(record.block)
        time.sleep(record.block.settle_s)
        record.started = time.monotonic()
        self._now_at = index
        for action in record.block.actions:
            if action.at_op is None:
                self._plan(record, action, record.started)
        return record.started

    def _plan(self, record: Record, action: Action, since: float) -> None:
        assert self.host is not None
        self.host.at(
            since + action.after_s, functools.partial(self._do, record, action)
        )

    def _set_links(self, block: Block) -> None:
        if self._lab is None:
            return
        for host in sorted(self._cut):
            self._lab.heal(host)
        self._cut.clear()
        for rank in sorted(self._stopped):
            self._signal(rank, "continue")
        wanted = plan.links_of(block, len(self._lab.links))
        for host, (up, down) in enumerate(wanted):
            link = self._lab.links[host]
            if link.up_mbit is not None and (link.up_mbit, link.down_mbit) != (
                up,
                down,
            ):
                self._lab.change(host, up_mbit=up, down_mbit=down)

    def _do(self, record: Record, action: Action) -> None:
        if action.do in _SIGNALS:
            self._signal(action.target, action.do)
        elif self._lab is None:
            raise CaseError(f"'{action.do}' needs a lab")
        elif action.do == "link":
            self._lab.change(
                action.target, up_mbit=action.up_mbit, down_mbit=action.down_mbit
            )
        elif action.do == "cut":
            self._lab.cut(action.target)
            self._cut.add(action.target)
        elif action.do == "heal":
            self._lab.heal(action.target)
            self._cut.discard(action.target)
        elif action.do == "flow":
            assert action.to is not None
            self._lab.flow(action.target, action.to, seconds=action.for_s)
        record.done.append((time.monotonic(), action))

    def _signal(self, rank: int, what: str) -> None:
        assert self.host is not None
        pid = self.host.pid_of(rank)
        if pid is not None:
            os.kill(pid, _SIGNALS[what])
        if what == "stop":
            self._stopped.add(rank)
        else:
            self._stopped.discard(rank)


@contextlib.contextmanager
def lab_of(
    *, spare: int = 0, mbit: float = plan.MBIT, tcp: str = "cubic"
) -> Iterator[Lab]:
    """The hosts of the ranks, and `spare` more for cross traffic, without limits.

    `tcp` is the congestion control of all of them.
    """
    links = [Link(up_mbit=mbit, down_mbit=mbit)] * plan.NUM_RANKS
    with Lab([*links, *[Link()] * spare], tcp=tcp) as lab:
        if spare:  # their processes must be children of the main thread
            lab.round_trip_ms(plan.BAD, plan.NUM_RANKS, count=1)
        yield lab


def run(
    lab: Lab | None,
    blocks: Sequence[Block],
    *,
    program: str = OP_RANK,
    extra: Mapping[str, Any] | None = None,
    may_die: Sequence[int] = (),
    env: Mapping[str, str] | None = None,
    on_progress: Callable[[int, int], None] = lambda block, ops: None,
) -> list[Record]:
    """Runs all blocks with one set of ranks; without a lab on this machine's loopback.

    Raises CaseError with one sentence if a rank failed that must not.
    """
    records = [Record(block) for block in blocks]
    stage = Stage(lab, records)
    failed: list[str] = []
    current = 0

    def on_event(event: dict[str, Any]) -> None:
        nonlocal current
        if "failed" in event:
            failed.append(f"rank {event['rank']}: {event['failed']}")
        elif "done" in event:
            on_progress(current, event["done"])
        elif "ended" in event:
            current = event["ended"] + 1
            on_progress(current, 0)

    with tempfile.TemporaryDirectory() as folder:
        Path(folder, plan.PLAN_FILE).write_text(plan.to_json(blocks))
        host = Host(folder, plan.NUM_RANKS, on_met=stage.met, on_told=stage.told)
        stage.host = host
        try:
            _start(
                lab,
                program,
                json.dumps({"folder": folder} | dict(extra or {})),
                limit_s=2 * plan.estimate_s(blocks) + 60,
                may_die=may_die,
                env=env,
                on_event=on_event,
            )
        except RanksFailedError as error:
            if host.error:
                raise CaseError(str(host.error)) from error
            raise CaseError(failed[0] if failed else first_line(str(error))) from error
        finally:
            host.close()
        _read_notes(records, folder)
    if failed:
        raise CaseError(failed[0])
    return records


def _read_notes(records: list[Record], folder: str) -> None:
    for rank in range(plan.NUM_RANKS):
        file = Path(folder, f"{rank}.jsonl")
        for line in file.read_text().splitlines() if file.exists() else []:
            seen = json.loads(line)
            records[seen.pop("block")].by_rank[rank] = seen


def _start(
    lab: Lab | None,
    program: str,
    argument: str,
    *,
    limit_s: float,
    may_die: Sequence[int],
    env: Mapping[str, str] | None,
    on_event: Callable[[dict[str, Any]], None],
) -> None:
    if lab is None:
        run_ranks(
            f"straggler_cases/{program}",
            argument,
            num_ranks=plan.NUM_RANKS,
            limit_s=limit_s,
            on_event=on_event,
        )
        return
    ends = lab.run(
        Program(HERE / program, (argument,)),
        num_ranks=plan.NUM_RANKS,
        deadline_s=limit_s,
        check=not may_die,
        env=env,
        on_event=lambda rank, event: on_event(event),
    )
    for end in ends:
        if end.exit_code and end.rank not in may_die:
            raise RanksFailedError(f"rank {end.rank} ended with code {end.exit_code}.")


def first_line(text: str) -> str:
    """First line of an error's text, with the last line of a rank's output, if any."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if len(lines) < 2 else f"{lines[0]} {lines[-1]}"
