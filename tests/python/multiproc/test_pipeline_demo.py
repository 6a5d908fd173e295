# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""The pipeline demo, started like a user starts it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.beside

REPOSITORY = Path(__file__).parents[3]


def run(ranks, *arguments):
    return subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
            *(f"--nproc-per-node={ranks}", "-m", "aikido_torch.pipeline.demo"),
            *arguments,
        ],
        env=os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "120"},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=110,
    )


@pytest.mark.parametrize("weights", ["stash", "flush"])
def test_both_models_learn(weights):
    done = run(3, "--weights", weights, "--steps", "150", "--recompute")
    assert done.returncode == 0, done.stderr
    assert f"150 batches of 16 rows, weights: {weights}" in done.stdout
    for name, accuracy in (("digits", 80), ("text", 15)):
        (row,) = re.findall(rf"│ {name} .*", done.stdout)
        first, last, hits, _ = re.findall(r"[\d.]+(?=%? )", row.split("-1 ")[1])
        assert float(last) < float(first)
        assert float(hits) > accuracy


def test_other_numbers_of_ranks_are_refused():
    done = run(2)
    assert done.returncode != 0
    assert done.stdout.strip() == (
        "The demo takes three ranks: torchrun --nproc-per-node=3."
    )
