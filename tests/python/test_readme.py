# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""The call that docs/choose-a-policy.md shows passes a strict type checker."""

import re
from pathlib import Path

import pytest

import aikido_torch

PAGE = Path(aikido_torch.__file__).parents[1] / "docs/choose-a-policy.md"
BEFORE = """
import torch, torch.distributed as dist, aikido_torch
from aikido_torch.straggler import SkipStraggler
tensor = torch.ones(3)
"""
AFTER = """
reveal_type(outcome.skipped)
SkipStraggler(granularity="rank")
SkipStraggler(divisor="all")
SkipStraggler(on_log_full="go")
"""


def test_the_call_of_the_page_passes_a_strict_type_check(tmp_path):
    api = pytest.importorskip("mypy.api")
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    (snippet,) = [block for block in blocks if "work.outcome()" in block]
    program = tmp_path / "program.py"
    program.write_text(BEFORE + snippet + AFTER)
    # Skip the sources of torch, which take a minute. Only aikido's types matter.
    config = tmp_path / "mypy.ini"
    config.write_text("[mypy]\n[mypy-torch.*,rich.*]\nfollow_imports = skip\n")
    text, errors, _ = api.run(
        [
            "--strict",
            "--cache-dir",
            str(tmp_path / "cache"),
            "--config-file",
            str(config),
            str(program),
        ]
    )
    told = [
        line.split(": ", 1)[1] for line in text.splitlines() if "program.py" in line
    ]
    assert errors == ""
    assert told[0] == 'note: Revealed type is "list[int]"', text
    # Literals that the types do not allow are errors.
    kinds = [line.split('"')[1] for line in told[1:]]
    assert kinds == ["granularity", "divisor", "on_log_full"], text
