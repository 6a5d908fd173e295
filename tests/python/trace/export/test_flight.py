# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pickle

import pytest

from aikido_torch import _C
from aikido_torch.errors import ConfigError
from aikido_torch.trace.export._flight import write_flight_recorder
from aikido_torch.trace.record._spans import Kind, SpanOutcome
from benchmarks.tracing_cases.simulate import Model
from harness.flight import analysed, is_at_odds
from harness.traces import dump, span


def test_each_rank_has_a_file_with_its_calls_in_order(tmp_path):
    calls = [
        span(Kind.OPERATION, 30, 40, number=8, detail=1, outcome=SpanOutcome.FAILED),
        span(Kind.OPERATION, 10, 20, number=7, detail=1, bytes=64),
        span(Kind.SECTION, 1, 2),
    ]
    files = write_flight_recorder(tmp_path, [dump(r, calls) for r in range(4)])
    assert [path.name for path in files] == [f"aikido_{rank}" for rank in range(4)]
    written = pickle.loads(files[2].read_bytes())
    first, second = written["entries"]
    assert (first["collective_seq_id"], first["state"]) == (7, "completed")
    assert (second["collective_seq_id"], second["state"]) == (8, "started")
    assert first["profiling_name"] == "nccl:all_reduce"
    assert first["input_sizes"] == [[64]]
    assert written["pg_config"]["default"]["ranks"] == "[0, 1, 2, 3]"


def test_the_tool_of_torch_reads_the_files_and_finds_that_all_ranks_agree(tmp_path):
    found = analysed(tmp_path, Model().run([None] * 5, seed=1))
    assert len(found) == 5
    assert not [c for c in found if is_at_odds(c)]
    assert {c.collective_name for c in found} == {"nccl:all_reduce"}


def two_pairs(calls_of):
    """Dumps of ranks 0 and 1, and of 2 and 3, with the calls `calls_of(rank)`."""
    names = ["pair", "other"]
    return [
        dump(
            rank, [c._replace(name=rank // 2) for c in calls_of(rank)], names=names,
            members={"pair": (0, 1), "other": (2, 3)},
            operations=_C.operation_names(),
        )
        for rank in range(4)
    ]  # fmt: skip


@pytest.mark.parametrize("num_bytes", [0, 4, 1001])
def test_the_tool_of_torch_accepts_healthy_calls_of_every_kind(tmp_path, num_bytes):
    kinds = _C.operation_names()

    def calls(_):
        return [
            span(
                Kind.OPERATION, 10 * i, 10 * i + 5, number=i + 1, detail=kind,
                bytes=0 if "barrier" in name or name == "all_to_all" else num_bytes,
            )
            for i, (kind, name) in enumerate(sorted(kinds.items()))
        ]  # fmt: skip

    found = analysed(tmp_path, two_pairs(calls))
    assert not [c for c in found if is_at_odds(c)]
    assert len(found) == 2 * len(kinds)
    ranks = [sorted(c.expected_ranks) for c in found]
    assert sorted(map(tuple, ranks)) == [(0, 1)] * len(kinds) + [(2, 3)] * len(kinds)


def test_the_tool_of_torch_names_the_rank_without_the_hanging_call(tmp_path):
    def calls(rank):
        made = [span(Kind.OPERATION, 10, 20, number=1, detail=1, bytes=64)]
        if rank != 3:
            made.append(
                span(
                    Kind.OPERATION, 30, 90, number=2, detail=1, bytes=64,
                    outcome=SpanOutcome.COMPLETE if rank < 2 else SpanOutcome.OPEN,
                )
            )  # fmt: skip
        return made

    dumps = two_pairs(calls)
    found = analysed(tmp_path, dumps)
    (hung,) = [c for c in found if is_at_odds(c)]
    assert (hung.expected_ranks, hung.missing_ranks) == ({2, 3}, {3})
    assert (hung.collective_seq_id, hung.collective_state) == (2, "started")
    assert len(found) == 4


def test_calls_of_an_unknown_group_are_left_out(tmp_path):
    calls = [span(Kind.OPERATION, 10, 20, number=1, detail=1, name=1)]
    files = write_flight_recorder(tmp_path, [dump(0, calls, members={"data": ()})])
    assert pickle.loads(files[0].read_bytes())["entries"] == []


def test_a_missing_folder_gives_a_clear_error(tmp_path):
    with pytest.raises(ConfigError, match="cannot be written"):
        write_flight_recorder(tmp_path / "no", [dump(0, [])])
