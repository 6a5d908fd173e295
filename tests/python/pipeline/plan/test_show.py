# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import io

from rich.console import Console

from aikido_torch import _C, pipeline
from aikido_torch.pipeline.plan import _profile, _show
from aikido_torch.profile import _profiler


def printed(plan, width=80):
    console = Console(file=io.StringIO(), width=width)
    pipeline.show(plan, console=console)
    return console.file.getvalue()


def a_chain():
    return _profile.chain(
        ids=["conv", "[pool]", "fc"],
        forward_ms=[2, 1, 1],
        backward_ms=[4, 2, 2],
        activation_bytes=[2e6, 1e6, 1e3],
        parameter_bytes=[0, 0, 9e9],
    )


def test_a_plan_is_a_table_with_a_row_for_each_stage():
    text = printed(pipeline.partition(a_chain(), machines=4, bandwidth=1e9))
    assert "Plan 3-1" in text
    figures = text[text.index("memory") : text.index("stage 0")].splitlines()[2:]
    assert [line.split() for line in figures if line.strip()] == [
        ["0", "3", "9.000", "0.000", "0.000", "3.000", "0", "B", "2", "6", "MB"],
        ["1", "1", "3.000", "0.000", "2.000", "3.000", "9", "GB", "1", "9", "GB"],
    ]
    assert "one mini-batch every 3.000 ms on 4 machines: 4.00 times one machine" in text


def test_the_length_of_a_bar_is_the_time_of_its_stage():
    text = printed(pipeline.partition(a_chain(), machines=3, bandwidth=1e9))
    drawn = text[text.index("stage 0") :].splitlines()
    assert drawn[0] == "stage 0  ■■  " + "█" * 40 + " 100%"
    assert drawn[1] == "             2 layers, conv ... [pool]"
    assert drawn[2].startswith("         │   " + "─" * 18)
    assert drawn[2].endswith(" 1 MB each way")
    assert drawn[3] == "stage 1  ■   " + "█" * 27 + " 67%"
    assert drawn[4] == "             layer fc"


def test_no_figure_is_cut_off_in_a_terminal_of_80_columns():
    large = _profile.chain(
        ids=["a" * 40, "b"],
        forward_ms=[12345, 2345.678],
        backward_ms=[12345, 2345.678],
        activation_bytes=[123e6, 123e6],
        parameter_bytes=[123e6, 123e6],
    )
    plan = pipeline.partition(large, machines=[4, 8], bandwidth=[1e9, 1e8])
    narrow, wide = (printed(plan, width) for width in (80, 300))
    assert narrow.split() == wide.split()
    assert "29381.356" in narrow


def test_many_machines_are_counted_and_levels_are_multiplied():
    plan = pipeline.partition(
        _profile.chain(
            forward_ms=[3],
            backward_ms=[6],
            activation_bytes=[1],
            parameter_bytes=[0],
        ),
        machines=[5, 4],
        bandwidth=[1e9, 1e9],
    )
    text = printed(plan)
    assert "20 (5 x 4)" in text
    assert "■" * 7 + "… 20" in text


def test_a_model_without_time_is_drawn_too():
    plan = pipeline.partition(
        _profile.chain(
            forward_ms=[0], backward_ms=[0], activation_bytes=[0], parameter_bytes=[0]
        ),
        machines=1,
        bandwidth=1,
    )
    assert "stage 0  ■   0%" in printed(plan)


def test_layers_are_a_table_with_sums_beside_the_whole_model():
    conv = _C.Layer(
        "conv",
        description="Conv2d(3, 4, size=(3, 3)), [add]",
        forward_ms=2,
        backward_ms=4,
        activation_bytes=2e6,
        parameter_bytes=500,
    )
    fc = _C.Layer(
        "[fc]",
        forward_ms=1,
        backward_ms=2.5,
        activation_bytes=1e3,
        parameter_bytes=9e9,
    )
    profile = _C.Profile([conv, fc], [("conv", "[fc]")])
    measured = _profiler.Measurement(
        profile=profile,
        trace="export",
        whole_forward_ms=4,
        whole_backward_ms=6,
        repeats=7,
    )
    console = Console(file=io.StringIO(), width=140)
    _show.show_layers(measured, console=console)
    text = console.file.getvalue()
    assert "Layers, found by export" in text
    lines = [line.split("│") for line in text.splitlines() if line.startswith("│")]
    cells = [[cell.strip() for cell in line[1:-1]] for line in lines]
    assert cells == [
        ["conv", "Conv2d, [add]", "2.000", "4.000", "2 MB", "500 B"],
        ["[fc]", "", "1.000", "2.500", "1 kB", "9 GB"],
        ["all", "", "3.000", "6.500", "", "9 GB"],
    ]
    assert (
        "the model in one piece: 4.000 ms forward, 6.000 ms backward (medians of 7); "
        "its layers take 0.95 times as long"
    ) in text
