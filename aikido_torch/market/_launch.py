# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Files and options for launchers: a SkyPilot task, and the range of machines."""

import json
from collections.abc import Sequence

from aikido_torch.market._errors import MarketError

__all__ = ["nnodes", "sky_task"]


def nnodes(least: int, most: int) -> str:
    """The value of `--nnodes` of the elastic launcher, such as "2:16".

    Raises:
        MarketError: the range is empty.
    """
    if not 1 <= least <= most:
        raise MarketError(
            f"The range of machines is {least} to {most}; give at least 1, and the "
            "smaller number first."
        )
    return f"{least}:{most}"


def sky_task(
    command: str,
    *,
    accelerators: str,
    machines: int,
    regions: Sequence[str],
    is_spot: bool,
) -> str:
    """Text of a SkyPilot YAML file that tries the regions in this order.

    Strings are written as JSON strings, which are YAML strings too.

    Raises:
        MarketError: there is no region.
    """
    if not regions:
        raise MarketError("A SkyPilot task needs a region; give at least one.")
    lines = [f"num_nodes: {machines}", "resources:", "  ordered:"]
    for region in regions:
        lines += [
            f"    - infra: {json.dumps('aws/' + region)}",
            f"      accelerators: {json.dumps(accelerators)}",
            f"      use_spot: {json.dumps(is_spot)}",
        ]
    lines += [f"run: {json.dumps(command)}", ""]
    return "\n".join(lines)
