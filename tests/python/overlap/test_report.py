# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import io

import pytest
from rich.console import Console

from aikido_torch.ordering import LinkCost
from aikido_torch.ordering._costs import collective_time
from aikido_torch.overlap._iteration import Iteration
from aikido_torch.overlap._layout import planned
from aikido_torch.overlap._report import message_cost, show
from aikido_torch.overlap._retune import Retune

SEEN = Iteration(
    uses=(("in", 0.0), ("out", 0.01)),
    ready=(("out", 0.03), ("in", 0.05)),
    compute_s=0.06,
    seconds=0.07,
)
SIZES = {"in": 1000, "out": 2000}
LINK = LinkCost(alpha_s=0.001, beta_s=1e-6)


def text_of(members):
    kinds = dict.fromkeys(SIZES, "float32")
    layout = planned(SEEN, SIZES, LINK, kinds)
    console = Console(file=io.StringIO(), width=120)
    measured = Retune()
    measured.add_link([(size, LINK.time_s(size)) for size in (0, *SIZES.values())])
    measured.add(SEEN, [])
    show(
        layout,
        measured,
        num_bytes=SIZES,
        num_steps=2,
        members=members,
        console=console,
    )
    return console.file.getvalue()


def test_windows_buckets_and_times_are_shown():
    text = text_of(3)
    # "out" is ready 20 ms after its use, and used again at 60 ms: it takes 3 of 40 ms.
    (row,) = [line for line in text.splitlines() if "out" in line]
    cells = [cell.strip() for cell in row.strip("│").split("│")]
    assert cells[:6] == ["out", "2,000", "3", "20", "60", "37"]
    assert "predicted 60 ms, measured 70 ms" in text
    assert "direct" in text
    assert "simulated:" in text


def test_one_rank_has_no_allreduces_to_choose():
    assert "Buckets" not in text_of(1)


@pytest.mark.parametrize("members", [2, 3, 8])
def test_the_cost_of_a_message_gives_that_of_the_allreduce_again(members):
    message = message_cost(LINK, members)
    for size in (0, 1000, 10**6):
        again = collective_time("direct", members=members, bytes=size, link=message)
        assert again == pytest.approx(LINK.time_s(size), rel=1e-6)
