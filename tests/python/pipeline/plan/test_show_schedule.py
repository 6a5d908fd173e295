# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import io

from rich.console import Console

from aikido_torch import pipeline


def printed(schedule, simulation=None, **options):
    console = Console(file=io.StringIO(), width=100, **options)
    schedule.show(simulation, console=console)
    return console.file.getvalue()


def rows_of(text):
    lines = [line.split("│") for line in text.splitlines() if line.startswith("│")]
    return [[cell.strip() for cell in line[1:-1]] for line in lines]


def test_a_schedule_is_a_grid_and_a_table_with_a_row_for_each_rank():
    made = pipeline.schedule("1f1b_async", stages=2, micro_batches=8)
    text = printed(made)
    assert text.startswith(made.grid())
    assert "Schedule 1f1b_async, weights stash" in text
    assert rows_of(text) == [
        ["0", "0", "2", "2", "1", "24", "11.1%"],
        ["1", "1", "1", "1", "0", "24", "11.1%"],
    ]
    assert "8 micro-batches in 27, one every 3 in between; idle 11.1% of it" in text


def test_recomputation_is_shown_with_its_inputs():
    made = pipeline.schedule(
        "interleaved_1f1b",
        stages=4,
        stages_per_rank=2,
        micro_batches=2,
        recompute=True,
    )
    text = printed(made)
    assert "inputs" in text
    assert rows_of(text)[0][:4] == ["0", "0, 2", "1", "4"]
    assert "inputs" not in printed(
        pipeline.schedule("gpipe", stages=1, micro_batches=1)
    )


def test_a_terminal_shows_as_much_of_the_grid_as_fits():
    made = pipeline.schedule("gpipe", stages=1, micro_batches=40)
    lines = printed(made, force_terminal=True, color_system=None).splitlines()
    assert len(lines[0]) == 100
    assert lines[0].endswith("…")
    assert "B39" in printed(made).splitlines()[0]
