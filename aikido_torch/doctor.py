# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""The command `aikido doctor`: build, settings, and a test on this machine.

The self-test runs four ranks inside this process, over loopback sockets: a strict
allreduce, and an allreduce that skips a late rank. It takes a second.
"""

import json
import os
import platform
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import torch
import torch.distributed as dist
import typer
from rich.console import Console
from rich.table import Table
from torch._C._distributed_c10d import HashStore
from torch.distributed.distributed_c10d import PrefixStore

from aikido_torch import _C
from aikido_torch._address import is_loopback, own_address
from aikido_torch._names import unknown_variables
from aikido_torch.errors import AikidoError
from aikido_torch.options import Options
from aikido_torch.straggler import Policy, SkipStraggler, WaitAll

__all__: list[str] = []

_SIZE = 4
_LATE_RANK = 3
_LATE_S = 0.2
_COUNT = 100_000  # elements; every rank owns a shard of them
_TIMEOUT = timedelta(seconds=20)


@dataclass(frozen=True, kw_only=True)
class Check:
    """One call of the self-test, with its outcome and a verdict."""

    name: str
    is_good: bool
    outcome: str
    # Time from the call to the result, by rank.
    call_ms: list[float]


def facts() -> dict[str, str]:
    """Facts about this build and this machine."""
    info = _C.build_info()
    return {
        "aikido": info["version"],
        "built for torch": info["torch"],
        "torch": torch.__version__,
        "python": platform.python_version(),
        "compiler": info["compiler"],
        "cuda": "yes" if info["cuda"] else "no",
        "C++11 ABI": "yes" if info["cxx11_abi"] else "no",
        "kernels": ", ".join(info["instruction_sets"]),
        "machine": f"{platform.system()} {platform.release()} {platform.machine()}",
    }


def settings() -> list[dict[str, Any]]:
    """Every setting with variable, value, source, range and meaning.

    Raises:
        ConfigError: a variable has a value that it does not take.
    """
    ranges = {row["option"]: row["range"] for row in _C.settings_table()}
    return [
        asdict(setting) | {"range": ranges[setting.option]}
        for setting in Options().resolve()
    ]


def address() -> str:
    """Address that other ranks would get for a rank that starts on this machine now.

    Raises:
        ConfigError: the interface in the settings does not exist.
    """
    return own_address(Options(), None)


def self_test() -> list[Check]:
    """A strict allreduce and one with a late rank, among four ranks in one process.

    Raises:
        AikidoError: the ranks do not connect.
    """
    backends = _connect()
    try:
        return [_check_strict(backends), _check_late(backends)]
    finally:
        _on_all_ranks(lambda rank: backends[rank].shutdown())


def _connect() -> list[_C.AikidoBackend]:
    store = HashStore()
    options = Options()
    shared_memory_bytes = int(options.value("transport_shared_memory_bytes"))

    def connect(rank: int) -> _C.AikidoBackend:
        return _C.AikidoBackend(
            runtime=_C.Runtime("127.0.0.1", _TIMEOUT, shared_memory_bytes, 0),
            store=PrefixStore("doctor", store),
            rank=rank,
            size=_SIZE,
            timeout=_TIMEOUT,
            group_name="doctor",
            options=options.given(),
        )

    return _on_all_ranks(connect)


def _on_all_ranks(work: Callable[[int], Any]) -> list[Any]:
    """Runs `work(rank)` for all ranks in threads; raises the first error of a rank."""
    results: list[Any] = [None] * _SIZE
    failures: list[BaseException] = []

    def run(rank: int) -> None:
        try:
            results[rank] = work(rank)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(_SIZE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return results


@dataclass(frozen=True)
class _Seen:
    """The view that one rank has of a call."""

    result: torch.Tensor
    outcome: _C.Outcome
    call_ms: float


def _all_reduce(
    backends: list[_C.AikidoBackend], policy: Policy, late_s: float
) -> list[_Seen]:
    together = threading.Barrier(_SIZE)

    def call(rank: int) -> _Seen:
        tensor = torch.full((_COUNT,), float(rank + 1))
        together.wait()
        if rank == _LATE_RANK:
            time.sleep(late_s)
        start = time.perf_counter()
        work = backends[rank].all_reduce(
            tensor, dist.ReduceOp(dist.ReduceOp.SUM), policy.native(), 0, _TIMEOUT
        )
        work.wait()
        call_ms = (time.perf_counter() - start) * 1e3
        outcome = work.outcome()
        assert outcome is not None, "a work that was waited for has its outcome"
        return _Seen(tensor, outcome, call_ms)

    return _on_all_ranks(call)


def _check_strict(backends: list[_C.AikidoBackend]) -> Check:
    seen = _all_reduce(backends, WaitAll(), 0.0)
    total = float(sum(range(1, _SIZE + 1)))
    return Check(
        name="strict allreduce",
        is_good=all(
            s.outcome.kind == "complete" and bool((s.result == total).all())
            for s in seen
        ),
        outcome=_describe(seen),
        call_ms=[s.call_ms for s in seen],
    )


def _check_late(backends: list[_C.AikidoBackend]) -> Check:
    policy = SkipStraggler(min_contributors=_SIZE - 1, floor_ms=20, ceiling_ms=50)
    seen = _all_reduce(backends, policy, _LATE_S)
    first = seen[0]
    # Shards may have different late ranks, but all ranks must see the same.
    agreed = all(
        torch.equal(s.result, first.result)
        and s.outcome.skipped == first.outcome.skipped
        for s in seen
    )
    others = [s.call_ms for rank, s in enumerate(seen) if rank != _LATE_RANK]
    return Check(
        name=f"rank {_LATE_RANK} is {_LATE_S * 1e3:.0f} ms late",
        is_good=agreed
        and first.outcome.skipped == [_LATE_RANK]
        and max(others) < _LATE_S * 1e3,
        outcome=_describe(seen),
        call_ms=[s.call_ms for s in seen],
    )


def _describe(seen: list[_Seen]) -> str:
    outcome = seen[0].outcome
    if outcome.kind == "complete":
        return "complete"
    skipped = ", ".join(map(str, outcome.skipped))
    return f"{outcome.kind}: went on without {skipped} ({outcome.reason})"


def _describe_address(here: str) -> str:
    master = os.environ.get("MASTER_ADDR")
    why = f"MASTER_ADDR is {master}" if master else "MASTER_ADDR is not set"
    if not is_loopback(here):
        return f"Other ranks reach this machine at {here} ({why})."
    return (
        f"[yellow]Other ranks reach this machine at {here} ({why}): only those on this "
        "machine. For others set MASTER_ADDR to an address that they can reach, or "
        "AIKIDO_SOCKET_IFNAME to an interface.[/]"
    )


def _print_facts(console: Console) -> None:
    table = Table(title="Build and machine", show_header=False)
    for name, value in facts().items():
        table.add_row(name, value)
    console.print(table)


def _print_settings(console: Console, rows: list[dict[str, Any]]) -> None:
    table = Table(title="Settings")
    table.add_column("setting and variable", no_wrap=True)
    table.add_column("value", no_wrap=True)
    table.add_column("meaning and range")
    for row in rows:
        table.add_row(
            f"{row['name']}\n[dim]{row['variable']}[/]",
            f"{row['value']}\n[dim]{row['source']}[/]",
            f"{row['help']} [dim]({row['range']})[/]",
        )
    console.print(table)


def _print_checks(console: Console, checks: list[Check]) -> None:
    table = Table(title=f"Self-test: {_SIZE} ranks in this process")
    for column in ("call", "is", "outcome", "ms on each rank"):
        table.add_column(column)
    for check in checks:
        table.add_row(
            check.name,
            "[green]good[/]" if check.is_good else "[red]bad[/]",
            check.outcome,
            "  ".join(f"{ms:.1f}" for ms in check.call_ms),
        )
    console.print(table)


app = typer.Typer()


@app.command()
def main(
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the same to this file.")
    ] = None,
    no_self_test: Annotated[
        bool, typer.Option("--no-self-test", help="Only show facts and settings.")
    ] = False,
) -> None:
    """Shows the build and the settings, and tests both on loopback."""
    console = Console()
    _print_facts(console)
    checks: list[Check] = []
    variables = [row["variable"] for row in _C.settings_table()]
    mistyped = unknown_variables(os.environ, variables)
    try:
        rows = settings()
        _print_settings(console, rows)
        for sentence in mistyped:
            console.print(f"[yellow]{sentence}[/]", soft_wrap=True)
        here = address()
        console.print(_describe_address(here), soft_wrap=True)
        if not no_self_test:
            checks = self_test()
            _print_checks(console, checks)
    except AikidoError as error:
        console.print(f"[red]{type(error).__name__}[/]: {error}")
        raise typer.Exit(1) from None
    if json_file is not None:
        found = {
            "facts": facts(),
            "settings": rows,
            "mistyped": mistyped,
            "address": here,
            "checks": [asdict(check) for check in checks],
        }
        json_file.write_text(json.dumps(found, indent=2) + "\n")
    if not all(check.is_good for check in checks):
        raise typer.Exit(1)


if __name__ == "__main__":
    app()
