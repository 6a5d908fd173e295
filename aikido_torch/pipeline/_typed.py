# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Errors of a command with the names of its options."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console

from aikido_torch.errors import AikidoError

__all__ = ["as_typed", "typed_errors"]

# Options whose argument in the library has another name. The second table identifies
# them by the beginning of the error text.
_OTHER_NAMES = {"memory_bytes": "--memory", "sample_inputs": "--input"}
_BEGINNINGS = {
    r"level \d+ has |no machines are": "--machines",
    r"there are \d+ numbers of machines": "--machines and --bandwidth",
    r"the bandwidth of level": "--bandwidth",
    r"the memory of a machine|no plan fits into": "--memory",
    r"stage \d+ has -?\d+ replicas|the replicas take": "--replicas",
    r"the warmup of stage": "--warmups",
    r"a straight pipeline": "--straight",
    r"rank \d+, .*the limit is": "--max-activations",
    r'".*" is no policy for weights': "--weights",
    r"the slow-down of rank|slowdown names": "--slow",
}


def as_typed(text: str, options: dict[str, str]) -> str:
    """The library's error text with options in place of argument names.

    Args:
        text: the error text.
        options: option by argument, such as "micro_batches": "--micro-batches".
    """
    begin = next((o for b, o in _BEGINNINGS.items() if re.match(b, text)), None)
    for name, option in options.items():
        # A word such as "stages" is not in each place the name of the argument.
        after = r"\b" if "_" in name else r"(?= (is|has|are given)\b)"
        text = re.sub(rf"(?<![\w-]){name}{after}", option, text)
    return text if begin is None or begin in text else f"{begin}: {text}"


@contextmanager
def typed_errors(console: Console, context: typer.Context) -> Iterator[None]:
    """Context that prints errors of the library and ends the command with code 1.

    Errors of files that cannot be read or written are treated in the same way.
    """
    options = dict(_OTHER_NAMES)
    for parameter in context.command.params:
        if parameter.name and parameter.opts[0].startswith("--"):
            options[parameter.name] = parameter.opts[0]
    try:
        yield
    except AikidoError as error:
        text = as_typed(str(error), options)
    except OSError as error:
        names = [
            options[name]
            for name, value in context.params.items()
            if name in options and str(value) == str(error.filename)
        ]
        text = ": ".join([*names, str(error.filename)[:80], str(error.strerror)])
    else:
        return
    console.print(text, style="red", soft_wrap=True, markup=False)
    raise typer.Exit(1)
