# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import io

import pytest
import torch
from rich.console import Console
from torch import nn

from aikido_torch.errors import ConfigError
from aikido_torch.ordering import LinkCost, report
from aikido_torch.ordering._capture import Captured, CapturedLayer

LINK = LinkCost(alpha_s=0, beta_s=1)


def captured(sizes):
    """Layers in a row, each with a second forward, one backward, and a parameter."""
    layers = tuple(
        CapturedLayer(
            name=str(i),
            forward_s=1,
            backward_s=1,
            needs=(str(i - 1),) if i else (),
            parameters=(f"p{i}",),
        )
        for i in range(len(sizes))
    )
    sizes = {f"p{i}": size for i, size in enumerate(sizes)}
    return Captured(layers=layers, bytes=sizes, left_out=(), trace="chain")


def reported(model, sample=None, **options):
    out = io.StringIO()
    made = report(
        model, sample, link=LINK, console=Console(file=out, width=100), **options
    )
    return made, out.getvalue()


@pytest.mark.parametrize("order", ["tac", "tic"])
def test_an_iteration_is_shown_as_it_is_and_with_an_order(order):
    made, text = reported(captured([2, 2, 4]), order=order)
    assert made.before.makespan_s == 12
    assert made.after.makespan_s == 10
    assert made.speed_up == pytest.approx(1.2)
    assert made.order.transfers == ("p0", "p1", "p2")
    assert made.bounds.lower_s == 8
    assert "as they are ready" in text
    assert f"by {order.upper()}" in text


def test_a_model_is_captured_and_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "timeline.svg"
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    made, text = reported(model, torch.ones(2, 4), picture=path)
    assert made.captured.bytes == {
        "0.weight": 64,
        "0.bias": 16,
        "2.weight": 32,
        "2.bias": 8,
    }
    assert made.after.makespan_s <= made.before.makespan_s
    for name in made.captured.bytes:
        assert name in text
    assert "by TAC" in path.read_text()


def test_what_cannot_be_reported_is_refused():
    with pytest.raises(ConfigError, match="order is 'fifo'; it takes tac, tic"):
        reported(captured([1]), order="fifo")
    with pytest.raises(ConfigError, match="captured with a sample"):
        reported(nn.Linear(2, 2))
    with pytest.raises(ConfigError, match="nothing is transferred"):
        reported(nn.ReLU(), torch.ones(2))


def test_an_iteration_of_no_time_is_as_fast_as_it_is():
    made, _ = reported(captured([0]))
    assert made.speed_up == 1
    nothing = Captured(
        layers=(
            CapturedLayer(
                name="x", forward_s=0, backward_s=0, needs=(), parameters=("p",)
            ),
        ),
        bytes={"p": 0},
        left_out=(),
        trace="chain",
    )
    assert reported(nothing)[0].speed_up == 1
