# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest

from aikido_torch._inner import KINDS, Announcement, decide
from aikido_torch.errors import ConfigError


def said(identity, lacks="", device="cuda:0"):
    return Announcement(identity=identity, device=device, lacks=lacks)


OWN = [said("GPU-a"), said("GPU-b", device="cuda:1"), said("GPU-c")]
REASONS = [
    ([said("a"), said("b"), said("a")], "ranks 0 and 2 share a"),
    (
        [said("a"), said("b"), said("a"), said("b"), said("b")],
        "ranks 0 and 2 share a; ranks 1 and 3 and 4 share b",
    ),
    ([said("a"), said("b", "no network")], "rank 1 has no nccl: no network"),
    # Ranks without nccl are reported before ranks that share a device.
    (
        [said("a", "x"), said("a"), said("b", "y")],
        "rank 0 has no nccl: x; rank 2 has no nccl: y",
    ),
    (
        [None, None],
        "the ranks share no store, by which nccl meets: the group has got its members "
        "by reconfigure",
    ),
]


@pytest.mark.parametrize("setting", ["auto", "on"])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_ranks_with_their_own_devices_have_an_inner_backend(setting, size):
    decision = decide(setting, "nccl", OWN[:size])
    assert decision.is_inner
    assert decision.reason == f"each of the {size} ranks has a device of its own"


@pytest.mark.parametrize(("announcements", "reason"), REASONS)
def test_auto_says_why_there_is_no_inner_backend(announcements, reason):
    decision = decide("auto", "nccl", announcements)
    assert not decision.is_inner
    assert decision.reason == reason


@pytest.mark.parametrize(("announcements", "reason"), REASONS)
def test_on_without_an_inner_backend_is_an_error_with_ranks_and_devices(
    announcements, reason
):
    with pytest.raises(ConfigError) as caught:
        decide("on", "nccl", announcements)
    sentence = str(caught.value)
    assert sentence.startswith(f"devices_nccl is 'on', but {reason} [")
    for rank, one in enumerate(announcements):
        if one is not None:
            assert f"rank {rank}: cuda:0 ({one.identity})" in sentence
    assert sentence.endswith("with which tensors go through the host then.")


def test_nccl_is_only_for_cuda():
    assert list(KINDS) == ["cuda"]
    assert KINDS["cuda"].name == "nccl"
