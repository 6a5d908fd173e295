# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import logging

import pytest
import torch.distributed as dist

from aikido_torch.errors import ConfigError
from aikido_torch.trace._log import Seen, log_events, news

BEFORE = Seen(members=(0, 1, 2), skipped=4, given_bytes=10, failed=1)


@pytest.mark.parametrize(
    ("after", "event", "level", "values"),
    [
        (
            Seen((0, 2), "member", 4, 10, 1),
            "member_out", logging.WARNING, {"member": 1},
        ),
        (
            Seen((0, 1, 2, 3), "member", 4, 10, 1),
            "member_back", logging.INFO, {"member": 3},
        ),
        (
            Seen((0, 1, 2), "refused", 4, 10, 1),
            "standing", logging.WARNING, {"standing": "refused"},
        ),
        (
            Seen((0, 1, 2), "member", 7, 10, 1),
            "skipped", logging.INFO, {"calls": 3, "total": 7},
        ),
        (
            Seen((0, 1, 2), "member", 4, 30, 1),
            "stood_in", logging.INFO, {"bytes": 20},
        ),
        (
            Seen((0, 1, 2), "member", 4, 10, 2),
            "failed", logging.ERROR, {"calls": 1, "total": 2},
        ),
    ],
)  # fmt: skip
def test_each_change_is_told_once(after, event, level, values):
    (told,) = news(5, BEFORE, after)
    assert (told.event, told.level) == (event, level)
    assert told.values == {"rank": 5} | values
    assert news(5, after, after) == []


def test_what_happened_until_the_end_is_logged_with_its_values(group_of_one, caplog):
    caplog.set_level(logging.INFO, logger="aikido")
    log = log_events(look_s=3600)
    log._before = Seen(members=(0, 1), skipped=-2)
    log.close()
    log.close()
    assert not log._thread.is_alive()
    assert [record.aikido["event"] for record in caplog.records] == [
        "member_out",
        "skipped",
    ]
    assert caplog.messages[0] == (
        "aikido member_out: the others go on without it; rank=0 member=1"
    )


def test_it_ends_with_its_group(group_of_one):
    log = log_events(look_s=0.001)
    dist.destroy_process_group()
    log._thread.join(timeout=20)
    assert not log._thread.is_alive()
    log.close()


def test_without_a_group_there_is_nothing_to_log():
    with pytest.raises(ConfigError, match="no process group"):
        log_events()
