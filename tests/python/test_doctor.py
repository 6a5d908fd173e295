# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import json

import pytest
import typer
from typer.testing import CliRunner

import aikido_torch
from aikido_torch import _C, doctor

app = typer.Typer()
app.command()(doctor.main)


def run(*arguments):
    return CliRunner(env={"COLUMNS": "120"}).invoke(app, arguments)


def test_it_shows_the_build_the_settings_and_a_call_with_a_late_rank(tmp_path):
    done = run("--json", str(tmp_path / "found.json"))
    assert done.exit_code == 0, done.output
    assert aikido_torch.__version__ in done.output
    assert "went on without 3 (deadline)" in done.output
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["facts"]["kernels"].startswith("portable")
    assert [row["name"] for row in found["settings"]] == [
        row["name"] for row in _C.settings_table()
    ]
    assert {row["source"] for row in found["settings"]} <= {"default", "environment"}
    strict, late = found["checks"]
    assert strict["outcome"] == "complete"
    assert len(strict["call_ms"]) == len(late["call_ms"]) == 4
    assert max(late["call_ms"][:3]) < 200


def test_without_the_self_test_it_makes_no_call():
    done = run("--no-self-test")
    assert done.exit_code == 0
    assert "Settings" in done.output
    assert "Self-test" not in done.output


def test_it_prints_the_address_that_other_ranks_use(monkeypatch, tmp_path):
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    done = run("--no-self-test", "--json", str(tmp_path / "found.json"))
    assert "at 127.0.0.1 (MASTER_ADDR is 127.0.0.1): only those" in done.output
    assert json.loads((tmp_path / "found.json").read_text())["address"] == "127.0.0.1"
    monkeypatch.setattr(doctor, "own_address", lambda options, store: "10.0.0.5")
    done = run("--no-self-test")
    assert "Other ranks reach this machine at 10.0.0.5 (MASTER_ADDR is" in done.output


def test_a_setting_from_the_environment_is_marked(monkeypatch):
    monkeypatch.setenv("AIKIDO_TRANSPORT_CHUNK_BYTES", "12345")
    row = doctor.settings()[0]
    assert (row["value"], row["source"]) == (12345, "environment")
    assert row["range"] == "4096 to 16777216"
    assert "12345" in run("--no-self-test").output


def test_a_mistyped_variable_is_shown_with_the_nearest_name(monkeypatch, tmp_path):
    monkeypatch.setenv("AIKIDO_TRANSPORT_CHUNK_BYTE", "12345")
    done = run("--no-self-test", "--json", str(tmp_path / "found.json"))
    assert done.exit_code == 0
    sentence = (
        "The environment variable AIKIDO_TRANSPORT_CHUNK_BYTE is none of aikido and "
        'has no effect; did you mean "AIKIDO_TRANSPORT_CHUNK_BYTES"?'
    )
    assert sentence in done.output
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["mistyped"] == [sentence]


def test_a_wrong_setting_is_named_and_the_exit_code_is_1(monkeypatch):
    monkeypatch.setenv("AIKIDO_TRANSPORT_CHUNK_BYTES", "7")
    done = run()
    assert done.exit_code == 1
    assert 'ConfigError: AIKIDO_TRANSPORT_CHUNK_BYTES is "7"' in done.output


def test_a_failed_check_is_shown_and_the_exit_code_is_1(monkeypatch):
    check = doctor.Check(name="call", is_good=False, outcome="odd", call_ms=[1.0])
    monkeypatch.setattr(doctor, "self_test", lambda: [check])
    done = run()
    assert done.exit_code == 1
    assert "bad" in done.output


def test_a_late_rank_that_is_not_skipped_fails_the_check(monkeypatch):
    monkeypatch.setattr(doctor, "_LATE_S", 0.0)
    strict, late = doctor.self_test()
    assert strict.is_good
    assert not late.is_good


def test_an_exception_of_a_rank_propagates():
    def fail(rank):
        if rank == 2:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        doctor._on_all_ranks(fail)
