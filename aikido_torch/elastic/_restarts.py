# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Decision whether an ended process of a member is started again. Pure."""

import math
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from aikido_torch.errors import ConfigError

__all__ = ["Restart", "RestartPolicy", "exit_text"]


@dataclass(frozen=True)
class Restart:
    """Decision about one ended process.

    Attributes:
        verdict: "done": nothing more to do; "restart" after `pause_s`; "give_up".
        pause_s: seconds until the restart.
        reason: one sentence for the log.
    """

    verdict: Literal["done", "restart", "give_up"]
    pause_s: float
    reason: str


@dataclass(frozen=True)
class RestartPolicy:
    """Restarts of one slot of a machine, the place of one process.

    A process that ends with code 0 is done: the job is over, or the member left after a
    notice. Any other end is a death, and a new process joins the job in its place.

    Args:
        max_restarts: most restarts within `window_s`.
        window_s: seconds after which a restart no longer counts.
        first_pause_s: seconds before a first restart; each further one within the
            window doubles them.
        longest_pause_s: longest pause, in seconds.

    Raises:
        ConfigError: a number is negative.
    """

    max_restarts: int = 3
    window_s: float = 600.0
    first_pause_s: float = 1.0
    longest_pause_s: float = 30.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not (math.isfinite(value) and value >= 0):
                raise ConfigError(
                    f"elastic run: {name} is {value!r}; it takes a number from 0 on."
                )

    def decide(
        self,
        exit_code: int,
        *,
        now_s: float,
        restarts_s: Sequence[float],
        is_evicting: bool = False,
    ) -> Restart:
        """Decision after an end with `exit_code`.

        Args:
            exit_code: code of the process; -n if signal n ended it.
            now_s: present time, in seconds.
            restarts_s: times of the earlier restarts of this slot.
            is_evicting: True after an eviction notice of the machine.
        """
        text = exit_text(exit_code)
        if exit_code == 0:
            return Restart("done", 0.0, f"the process {text}")
        if is_evicting:
            return Restart(
                "done",
                0.0,
                f"the process {text} after the eviction notice of the machine",
            )
        recent = sum(now_s - at < self.window_s for at in restarts_s)
        if recent >= self.max_restarts:
            return Restart(
                "give_up",
                0.0,
                f"the process {text}, and there were {recent} restarts within "
                f"{self.window_s:g} s; correct its error, or give a larger "
                "--max-restarts",
            )
        pause_s = min(self.first_pause_s * 2.0**recent, self.longest_pause_s)
        return Restart(
            "restart",
            pause_s,
            f"the process {text}; a new one starts in {pause_s:g} s, restart "
            f"{recent + 1} of {self.max_restarts}",
        )


def exit_text(exit_code: int) -> str:
    """Words for an exit code, such as "was ended by SIGKILL"."""
    if exit_code >= 0:
        return f"ended with code {exit_code}"
    try:
        return f"was ended by {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"was ended by signal {-exit_code}"
