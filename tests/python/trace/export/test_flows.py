# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
from aikido_torch.trace.export._chrome import events
from aikido_torch.trace.record._spans import Kind
from harness.traces import dump, span, staged_rank


def arrows(dumps):
    """((rank, time) of the start, (rank, time) of the end) of each arrow."""
    found = {}
    for event in events(dumps):
        if event["ph"] in "sf":
            found.setdefault(event["id"], {})[event["ph"]] = event["pid"], event["ts"]
    return sorted((ends["s"], ends["f"]) for ends in found.values())


def message(kind, rank, peer, number, begin, **fields):
    own = {"number": number, "peer": peer, "detail": 7, "bytes": 100} | fields
    return dump(rank, [span(kind, begin, begin + 1, **own)])


def test_a_message_has_an_arrow_from_its_sender_to_its_receiver():
    sent = message(Kind.SEND, 0, 1, 5, 0)
    assert arrows([sent, message(Kind.RECEIVE_CHUNK, 1, 0, 5, 3)]) == [
        ((0, 0.0), (1, 3000.0))
    ]


def test_unrelated_messages_and_frames_have_no_arrow():
    sent = message(Kind.SEND, 0, 1, 5, 0)
    for other in (
        message(Kind.RECEIVE_CHUNK, 1, 0, 6, 3),
        message(Kind.RECEIVE_CHUNK, 1, 2, 5, 3),
        message(Kind.RECEIVE_CHUNK, 1, 0, 5, 3, offset=100),
        message(Kind.RECEIVE_CHUNK, 1, 0, 5, 3, detail=1),
    ):
        assert arrows([sent, other]) == []


def test_a_send_of_a_stage_has_an_arrow_to_the_receiving_stage():
    low = {"stage": 0, "forward": 3, "backward": 6, "steps": 1}
    high = {"stage": 1, "forward": 3, "backward": 6, "steps": 1}
    up = [
        staged_rank(0, **low, sent="send_activation"),
        staged_rank(1, **high, sent="receive_activation"),
    ]
    assert arrows(up) == [((0, 9000.0), (1, 9000.0)), ((0, 18000.0), (1, 18000.0))]
    down = [
        staged_rank(0, **low, sent="receive_gradient"),
        staged_rank(1, **high, sent="send_gradient"),
    ]
    assert [(s[0], f[0]) for s, f in arrows(down)] == [(1, 0), (1, 0)]


def test_sections_of_a_pipeline_carry_stage_and_micro_batch():
    made = events([staged_rank(0, stage=2, forward=3, backward=6, steps=1)])
    args = [e["args"] for e in made if e["name"] == "forward stage 2 micro-batch 1"]
    assert args == [{"step": 0, "stage": 2, "micro_batch": 1}]
