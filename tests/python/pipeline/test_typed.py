# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest
from typer.testing import CliRunner

from aikido_torch.pipeline.__main__ import app
from aikido_torch.pipeline._typed import as_typed

OPTIONS = {
    name: f"--{name.replace('_', '-')}"
    for name in ("stages", "micro_batches", "replicas", "max_cuts", "machines")
}

SCHEDULE = ["schedule", "1f1b_async", "--stages", "2", "--micro-batches", "4"]


@pytest.mark.parametrize(
    ("text", "typed"),
    [
        ("stages is 0; it takes 1", "--stages is 0; it takes 1"),
        (
            "replicas has 2 numbers and stages is 3",
            "--replicas has 2 numbers and --stages is 3",
        ),
        ("stages with 2 machines", "stages with 2 machines"),
        ("raise max_cuts", "raise --max-cuts"),
        ("level 1 has 0 machines", "--machines: level 1 has 0 machines"),
        ("the memory of a machine is nan", "--memory: the memory of a machine is nan"),
    ],
)
def test_names_of_arguments_become_names_of_options(text, typed):
    assert as_typed(text, OPTIONS) == typed


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["schedule", "1f1b", "--micro-batches", "4"], "--stages is 0; it takes 1 to"),
        (["schedule", "1f1b", "--stages", "2"], "--micro-batches is 0; it takes 1"),
        (
            ["schedule", "1f1b", "--stages", "99999999999", "--micro-batches", "4"],
            "--stages has 99999999999",
        ),
        (
            [
                "schedule",
                "1f1b",
                "--stages",
                "2",
                "--micro-batches",
                "4",
                "--replicas",
                "1",
            ],
            "--replicas has 1 numbers and --stages is 2",
        ),
        (
            [
                "schedule",
                "gpipe",
                "--stages",
                "2",
                "--micro-batches",
                "4",
                "--max-slots",
                "0",
            ],
            "--max-slots is 0",
        ),
        (
            [
                "schedule",
                "gpipe",
                "--stages",
                "2",
                "--micro-batches",
                "4",
                "--forward",
                "-1",
            ],
            "--forward has -1; it takes finite times",
        ),
        (["partition", "PROFILE", "--machines", "0"], "--machines: level 1 has 0"),
        (
            ["partition", "PROFILE", "--machines", "4", "--bandwidth", "nan"],
            "--bandwidth",
        ),
        (["partition", "PROFILE", "--machines", "4", "--memory", "-1"], "--memory"),
        (["partition", "PROFILE", "--machines", "4", "--max-cuts", "1"], "--max-cuts"),
        (
            ["partition", "PROFILE", "--machines", "4", "--bandwidth", "1e9,1e8"],
            "--machines and --bandwidth: there are 1 numbers of machines",
        ),
        (
            ["partition", "PROFILE", "--machines", "1", "--json", "no/plan.json"],
            "--json: no/plan.json: No such file or directory",
        ),
        (
            ["partition", "PROFILE", "--machines", "1", "--output", "x" * 300],
            f"--output: {'x' * 80}: File name too long",
        ),
        (
            [*SCHEDULE, "--weights", "late"],
            '--weights: "late" is no policy for weights',
        ),
        (
            [*SCHEDULE, "--max-activations", "1"],
            "--max-activations: rank 0, instruction 2",
        ),
        ([*SCHEDULE, "--max-activations", "0"], "--max-activations is 0; it takes 1"),
        ([*SCHEDULE, "--plot", "no/grid.png"], "--plot: no/grid.png: No such file"),
    ],
)
def test_commands_name_options_as_the_user_types_them(tmp_path, arguments, sentence):
    file = tmp_path / "profile.txt"
    figures = (
        "forward_compute_time=1, backward_compute_time=2, activation_size=3, "
        "parameter_size=4"
    )
    file.write_text(f"a -- Linear -- {figures}\nb -- Linear -- {figures}\n\ta -- b\n")
    given = [str(file) if argument == "PROFILE" else argument for argument in arguments]
    result = CliRunner().invoke(app, given)
    assert result.exit_code == 1, result.output
    assert sentence in result.output
