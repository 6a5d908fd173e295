# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import json

import pytest

from aikido_torch.errors import ConfigError
from aikido_torch.reassign._log import AssignmentLog, ReplayedItems, StepRecord


def record_of(*labels, owner=0, **options):
    pairs = [(owner, label) for label in labels]
    return StepRecord(begun=[*labels], computed=pairs, **{"knew_last": True} | options)


def log_of(**records):
    log = AssignmentLog()
    for step, record in enumerate(records.values()):
        log.add(step, record)
    return log


def claims(items, step):
    items.begin(step, [], [])
    found = []
    while (claim := items.claim(1.0)) is not None:
        found.append((claim.owner, claim.label, claim.is_last))
    return found


def test_a_log_is_json():
    log = log_of(a=record_of(1, 2, num_given=3), b=record_of(4, owner=2))
    log.on_outcome(1, has_counted=True)
    other = AssignmentLog.of_state(json.loads(json.dumps(log.state_dict())))
    assert other.steps == log.steps
    assert other.steps[1].has_counted


@pytest.mark.parametrize("state", [[], {}, {"version": 2}, "log"])
def test_nonsense_is_no_log(state):
    with pytest.raises(ConfigError, match="that is no log"):
        AssignmentLog.of_state(state)


def test_a_replay_gives_the_computed_items_in_order():
    log = log_of(
        a=record_of(5, 3, owner=1), b=record_of(7, knew_last=False), c=record_of(9)
    )
    log.on_outcome(2, has_counted=False)
    items = ReplayedItems(0, log)
    assert claims(items, 0) == [(1, 5, False), (1, 3, True)]
    assert claims(items, 1) == [(0, 7, False)]
    assert claims(items, 2) == []  # its gradient was not in the result
    assert claims(items, 3) == []  # this rank was late


def test_old_steps_are_forgotten():
    log = AssignmentLog()
    for step in range(100_010):
        log.add(step, record_of())
    log.on_outcome(3, has_counted=True)
    assert len(log.steps) == 100_000
    assert min(log.steps) == 10
