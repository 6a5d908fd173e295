# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Commands of `python -m aikido_torch.market`."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from aikido_torch.market.__main__ import app


def run(*args):
    return CliRunner().invoke(app, [str(arg) for arg in args])


@pytest.fixture
def prices(tmp_path):
    path = tmp_path / "zone.csv"
    random = np.random.default_rng(0)
    rows = [f"{t},{p:.4f}" for t, p in enumerate(random.uniform(0.1, 0.12, 12000))]
    lines = [f"{int(row.split(',')[0]) * 300},{row.split(',')[1]}" for row in rows]
    path.write_text("unix_seconds,usd_per_hour\n" + "\n".join(lines) + "\n")
    return path


@pytest.fixture
def capacity(tmp_path):
    path = tmp_path / "zone.json"
    samples = (np.random.default_rng(0).random(400) < 0.8).astype(int).tolist()
    path.write_text(json.dumps({"metadata": {"gap_seconds": 300}, "data": samples}))
    return path


def test_beta_prints_and_writes_the_table(prices, tmp_path):
    out = tmp_path / "beta.json"
    told = run("beta", prices, "--deltas", "0.001,0.1", "--json", out)
    assert told.exit_code == 0, told.output
    assert "zone" in told.output
    (table,) = json.loads(out.read_text())
    assert table["betas"][0] > table["betas"][1] == 0


def test_plan_of_prices_names_the_bid_and_the_range(prices):
    told = run("plan", prices, "--on-demand", 1.0, "--machines", 4)
    assert told.exit_code == 0, told.output
    assert "rent 4 in zone with bid" in told.output
    assert "--nnodes 1:4" in told.output


def test_plan_of_capacity_writes_a_task(capacity, tmp_path):
    sky = tmp_path / "task.yaml"
    args = ("--on-demand", 3, "--spot", 1, "--work", 10, "--deadline", 20)
    told = run("plan", capacity, *args, "--sky", sky)
    assert told.exit_code == 0, told.output
    assert "A sample is the number of available machines" in told.output
    assert "expected cost to the end" in told.output
    assert "use_spot: true" in sky.read_text()


def test_simulate_of_both_markets(prices, capacity, tmp_path):
    out = tmp_path / "run.json"
    args = ("--on-demand", 3, "--spot", 1, "--work", 10, "--deadline", 20)
    told = run("simulate", capacity, *args, "--start", 3, "--json", out)
    assert told.exit_code == 0, told.output
    assert json.loads(out.read_text())["is_missed"] is False
    picture = tmp_path / "run.png"
    more = ("--json", out, "--plot", picture)
    told = run("simulate", prices, *args, "--start", 100, *more)
    assert told.exit_code == 0, told.output
    assert json.loads(out.read_text())["free_share"] > 0
    assert picture.exists()


def test_compare_of_both_markets(prices, capacity, tmp_path):
    out = tmp_path / "lines.json"
    args = ("--on-demand", 3, "--spot", 1, "--work", 5, "--deadline", 10)
    told = run("compare", capacity, *args, "--starts", 2, "--json", out)
    assert told.exit_code == 0, told.output
    assert len(json.loads(out.read_text())) == 5
    told = run("compare", prices, *args, "--starts", 2)
    assert told.exit_code == 0, told.output
    assert "planner" in told.output


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (("--spot", 1, "--work", 10, "--deadline", 10), "deadline is lost already"),
        ((), "needs the spot price"),
    ],
)
def test_a_wrong_job_is_one_sentence(capacity, args, text):
    told = run("plan", capacity, "--on-demand", 3, *args)
    assert told.exit_code == 1
    assert text in told.output


def test_regions_of_different_lengths_are_refused(capacity, tmp_path):
    other = tmp_path / "other.json"
    other.write_text('{"metadata": {"gap_seconds": 60}, "data": [1, 1]}')
    told = run("plan", capacity, other, "--on-demand", 3, "--spot", 1)
    assert told.exit_code == 1
    assert "gaps [60.0, 300.0] s, lengths [2, 400] samples" in told.output


def test_wrong_numbers_are_named(prices):
    told = run("beta", prices, "--deltas", "x")
    assert told.exit_code == 2
    assert "numbers with commas" in told.output


def test_the_formats_are_printed():
    assert "gap_seconds" in run("fetch-format").output
