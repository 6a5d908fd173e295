# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Tables of the market tools."""

import io

from rich.console import Console

from aikido_torch.market import _show
from aikido_torch.market._beta import BetaTable
from aikido_torch.market._compare import Line


def text_of(table):
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(table)
    return console.export_text()


def test_the_table_of_beta_has_a_row_for_each_market():
    table = BetaTable(
        market="zone", deltas=(0.1,), betas=(0.25,), minutes=(float("nan"),), starts=4
    )
    text = text_of(_show.beta_rows([table]))
    assert "zone" in text
    assert "0.2500" in text


def test_policies_are_compared_with_the_planner():
    def line(policy, usd):
        return Line(
            policy=policy, usd=usd, seconds=3600.0, missed=0, free_share=0.0, jobs=2
        )

    lines = [line("planner", 10.0), line("on demand", 30.0)]
    text = text_of(_show.compare_rows(lines, title="2 jobs"))
    assert "+200.0%" in text
    assert "0 of 2" in text


def test_changes_and_alternatives_are_listed():
    text = text_of(_show.events_table([(1800.0, "spot", "capacity")], title="changes"))
    assert "0.50" in text
    text = text_of(_show.alternatives_table([("rent nothing", 0.25)], unit="USD"))
    assert "rent nothing" in text
