# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Decision whether ranks share the memory of a GPU, without a GPU."""

import json
from dataclasses import asdict

import pytest

from aikido_torch import _inner, _ipc
from aikido_torch.errors import ConfigError


def said(identity, lacks=""):
    return _ipc.Announcement(
        identity=identity, device="cuda:0", lacks=lacks, handle="00" * 96
    )


def test_ranks_that_share_one_gpu_use_its_memory():
    decision = _ipc.decide("auto", [said("GPU-1")] * 3)
    assert decision.is_shared
    assert decision.reason == "all 3 ranks share GPU-1"
    assert _ipc.decide("on", [said("GPU-1")] * 2).is_shared


@pytest.mark.parametrize(
    ("announcements", "reason"),
    [
        (
            [said("GPU-1"), said("GPU-1"), said("GPU-2")],
            "rank 0 has GPU-1 and rank 2 has GPU-2",
        ),
        (
            [said("GPU-1"), said("GPU-1", "it is virtual")],
            "rank 1 cannot share its memory: it is virtual",
        ),
        ([said("GPU-1")] * 129, "129 ranks are more than 128"),
        (
            [said("GPU-1", "one"), said("GPU-2", "two")],
            "rank 0 cannot share its memory: one; rank 1 cannot share its memory: two",
        ),
    ],
)
def test_other_ranks_go_through_the_host_and_learn_why(announcements, reason):
    decision = _ipc.decide("auto", announcements)
    assert not decision.is_shared
    assert decision.reason == reason
    with pytest.raises(ConfigError) as error:
        _ipc.decide("on", announcements)
    sentence = str(error.value)
    assert sentence.startswith(f"devices_ipc is 'on', but {reason} [rank 0: cuda:0 (")
    assert "devices_ipc='auto'" in sentence


def test_the_announcement_of_a_rank_fits_into_its_message():
    longest = said("GPU-" + "1" * 36, "x" * _ipc._MOST)
    assert len(json.dumps(asdict(longest)).encode()) < _inner._BYTES
