# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import logging

import pytest

from aikido_torch.elastic._events import log_event


@pytest.mark.parametrize(
    ("what", "level", "begin"),
    [
        ("founded", "INFO", "aikido elastic_founded: the job begins; "),
        ("members", "INFO", "aikido elastic_members: the members have changed; "),
        ("left", "INFO", "aikido elastic_left: this member has left after a notice; "),
        (
            "ended",
            "WARNING",
            "aikido elastic_ended: no reliable member stays, so the job ends here; ",
        ),
        (
            "rolled back",
            "WARNING",
            "aikido elastic_rolled_back: the last committed step is undone and "
            "repeated; ",
        ),
    ],
)
def test_an_event_is_a_line_with_values(caplog, what, level, begin):
    with caplog.at_level(logging.INFO, "aikido"):
        log_event(what, member="4", step=7, members=3)
    [record] = caplog.records
    assert record.levelname == level
    assert record.getMessage() == begin + "member=4 step=7 members=3"
    event = f"elastic_{what.replace(' ', '_')}"
    values = {"event": event, "member": "4", "step": 7, "members": 3}
    assert record.aikido == values
