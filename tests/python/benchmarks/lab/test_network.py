# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import os

import pytest

from benchmarks.lab import network
from benchmarks.lab.network import LEAST_BURST_BYTES, Link, Name

NAME = Name(12, 3456, 7)
THREE = ["aikidolab-3-300-1-h1", "aikidolab-3-300-1-switch"]


def test_a_name_tells_the_owner_and_the_place():
    assert NAME.switch == "aikidolab-12-3456-7-switch"
    assert NAME.host(11) == "aikidolab-12-3456-7-h11"
    assert Name.of_namespace(NAME.switch) == NAME
    assert Name.of_namespace(NAME.host(11)) == NAME


@pytest.mark.parametrize(
    "namespace",
    [
        "blue",
        "aikidolab-12-3456-h0",
        "aikidolab-12-3456-7",
        "aikidolab-12-3456-7-h",
        "aikidolab-12-3456-7-h0-x",
        "my-aikidolab-12-3456-7-h0",
    ],
)
def test_namespaces_of_others_are_not_ours(namespace):
    assert Name.of_namespace(namespace) is None


def test_only_what_dead_owners_left_is_found():
    starts = {1: 100, 2: 200}  # process 3 is gone, process 2 is a later one
    names = ["blue", "aikidolab-1-100-0-h0", "aikidolab-2-150-0-h0", *THREE]
    assert network.leftovers(names, starts.get) == ["aikidolab-2-150-0-h0", *THREE]


def test_this_process_has_a_start_and_no_process_has_none():
    assert network.start_of_process(os.getpid()) > 0
    assert network.start_of_process(1 << 30) is None


@pytest.mark.parametrize(
    ("link", "mbit", "limit"),
    [
        (Link(), 200, 1_250_000),  # 50 ms
        (Link(queue_ms=10), 1000, 1_250_000),
        (Link(queue_ms=10), 1, LEAST_BURST_BYTES),
        (Link(queue_bytes=300_000), 200, 300_000),
    ],
)
def test_a_queue_is_as_long_as_asked_but_not_shorter_than_a_burst(link, mbit, limit):
    assert link.limit_bytes(mbit) == limit


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"up_mbit": 0}, r"up_mbit is 0; it must be between 0\.1 and 100000 Mbit/s"),
        ({"down_mbit": -1}, "down_mbit is -1"),
        ({"queue_ms": 0}, "queue_ms is 0; it must be above 0"),
        ({"queue_bytes": 1500}, "queue_bytes is 1500; tbf needs 98304 or more"),
        ({"delay_ms": -1}, "delay_ms is -1 and loss 0.0"),
        ({"loss": 1}, "a share of 0 to below 1"),
    ],
)
def test_an_impossible_link_is_refused_with_a_sentence(fields, sentence):
    with pytest.raises(ValueError, match=sentence):
        Link(**fields)


def test_a_rate_becomes_a_token_bucket_that_a_change_replaces():
    command = network.shape_command("space", "eth0", 50, limit_bytes=312_500)
    assert " ".join(command) == (
        "tc -n space qdisc replace dev eth0 root tbf "
        "rate 50000000bit burst 98304 limit 312500"
    )


@pytest.mark.parametrize(("mbit", "burst"), [(20, 98304), (10_000, 1_250_000)])
def test_a_burst_lets_a_segment_through_and_lasts_a_millisecond(mbit, burst):
    command = network.shape_command("space", "eth0", mbit, limit_bytes=98304)
    assert command[command.index("burst") + 1] == str(burst)
    assert int(command[command.index("limit") + 1]) >= burst


def test_no_rate_removes_the_bucket():
    command = network.shape_command("space", "h1", None, limit_bytes=0)
    assert " ".join(command) == "tc -n space qdisc del dev h1 root"


def test_devices_are_made_inside_namespaces_only():
    links = [Link(), Link(delay_ms=5)]
    outside, switch, *hosts = network.set_up_batches(NAME, links, tcp="cubic")
    assert outside.namespace is None
    for line in outside.lines:
        assert line.startswith("netns add aikidolab-12-3456-7-") or (
            line == f"link add eth0 netns {NAME.host(0)} type veth "
            f"peer name h0 netns {NAME.switch}"
        )
    assert [batch.namespace for batch in (switch, *hosts)] == [
        NAME.switch,
        NAME.host(0),
        NAME.host(1),
    ]
    assert "tuntap add h1 mode tap" in switch.lines
    assert "tuntap add eth0 mode tap" in hosts[1].lines


def test_a_command_that_fails_is_named_with_what_it_said():
    with pytest.raises(network.LabError, match=r"'sh -c echo no >&2; exit 3' failed"):
        network.call(["sh", "-c", "echo no >&2; exit 3"])
    with pytest.raises(network.LabError, match="'no-such-tool' is missing"):
        network.call(["no-such-tool"])
