# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""One colour for each part of a step, in all reports and pictures."""

__all__ = ["COLORS", "PARTS", "TERMINAL", "part_of"]

# (on a white background, on a dark one)
COLORS: dict[str, tuple[str, str]] = {
    "forward": ("#2f6fb5", "#6aa9ec"),
    "backward": ("#2a8a57", "#5cc48b"),
    "input": ("#a35b00", "#dd9a45"),
    "optimizer": ("#7a4fb0", "#b391e6"),
    "stopped": ("#b3314b", "#ee7389"),
    "communication": ("#4a6a74", "#8fb0bb"),
    "waiting": ("#8a7400", "#c9b13f"),
    "other": ("#00797d", "#4fbfc3"),
}
PARTS = tuple(COLORS)
# The nearest that a terminal has.
TERMINAL = {
    "forward": "blue",
    "backward": "green",
    "input": "yellow",
    "optimizer": "magenta",
    "stopped": "red",
    "communication": "cyan",
    "waiting": "bright_black",
    "other": "white",
}

_NAMES = {
    "data": "input",
    "recompute": "forward",
    "input_gradient": "backward",
    "weight_gradient": "backward",
    "step": "optimizer",
    "wait": "waiting",
}
_CALLS = ("call", "contribution", "result", "message", "frame", "send", "receive")


def part_of(name: str) -> str:
    """The part of the step that something with this name belongs to.

    Names of collectives ("all_reduce") and of messages are communication. A pause is
    waiting. A name that is not known is "other".
    """
    first = name.split(" ")[0]
    if first in COLORS:
        return first
    if first in _NAMES:
        return _NAMES[first]
    if first.startswith("paused"):
        return "waiting"
    is_call = first.startswith(("all_", "reduce", "broadcast", "gather", "scatter"))
    if is_call or first.startswith(_CALLS) or first in ("barrier", "recv"):
        return "communication"
    return "other"
