# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Analysis of aikido's flight recorder files by torch's own tool."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from aikido_torch.trace import write_flight_recorder
from aikido_torch.trace.record._dump import Dump


def analysed(folder: Path, dumps: Iterable[Dump]) -> list[Any]:
    """The calls that the tool matched; skips the test if this torch lacks the tool."""
    components = "torch.distributed.flight_recorder.components"
    builder = pytest.importorskip(f"{components}.builder")
    loader = pytest.importorskip(f"{components}.loader")
    config = pytest.importorskip(f"{components}.config_manager")
    write_flight_recorder(folder, dumps)
    arguments = config.JobConfig().parse_args([str(folder), "-p", "aikido_"])
    details, version = loader.read_dir(arguments)
    return list(builder.build_db(details, arguments, version).collectives)


def is_at_odds(collective: Any) -> bool:
    """True if a rank did not make the call, or made another call."""
    return bool(collective.missing_ranks or collective.mismatch_collectives)
