# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pickle

import pytest

from aikido_torch.errors import ConfigError
from aikido_torch.trace import Kind, Outcome
from aikido_torch.trace._flight import write_flight_recorder
from benchmarks.tracing_cases.simulate import Model
from harness.traces import dump, span


def test_each_rank_has_a_file_with_its_calls_in_order(tmp_path):
    calls = [
        span(Kind.OPERATION, 30, 40, number=8, detail=1, outcome=Outcome.FAILED),
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


def test_the_tool_of_torch_reads_it_and_finds_that_all_ranks_agree(tmp_path):
    builder = pytest.importorskip(
        "torch.distributed.flight_recorder.components.builder"
    )
    loader = pytest.importorskip("torch.distributed.flight_recorder.components.loader")
    config = pytest.importorskip(
        "torch.distributed.flight_recorder.components.config_manager"
    )
    write_flight_recorder(tmp_path, Model().run([None] * 5, seed=1))
    arguments = config.JobConfig().parse_args([str(tmp_path), "-p", "aikido_"])
    details, version = loader.read_dir(arguments)
    database = builder.build_db(details, arguments, version)
    assert len(database.collectives) == 5
    assert not [c for c in database.collectives if getattr(c, "type_of_mismatch", None)]
    assert {c.collective_name for c in database.collectives} == {"nccl:all_reduce"}


def test_a_folder_that_is_not_there_is_a_sentence(tmp_path):
    with pytest.raises(ConfigError, match="cannot be written"):
        write_flight_recorder(tmp_path / "no", [dump(0, [])])
