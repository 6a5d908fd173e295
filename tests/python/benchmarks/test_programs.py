# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import sys

import pytest

from benchmarks import programs


@pytest.fixture
def tools(tmp_path, monkeypatch):
    """A folder with a fake cmake that records its arguments, and an empty build
    folder.
    """
    monkeypatch.setattr(programs, "BUILD", tmp_path / "build")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def write_cmake(folder, body):
    file = folder / "cmake"
    file.write_text(f"#!/bin/sh\n{body}\n")
    file.chmod(0o755)


def test_a_program_is_configured_and_built(tools):
    write_cmake(tools, f'echo "$@" >> {tools}/calls')
    assert programs.build("prog") == tools / "build" / "benchmarks" / "cpp" / "prog"
    configure, build = (tools / "calls").read_text().splitlines()
    assert "-DAIKIDO_BENCHMARKS=ON -DAIKIDO_TORCH=OFF -DAIKIDO_TESTS=OFF" in configure
    assert build.startswith(f"--build {tools}/build --target prog")


def test_a_folder_that_is_configured_keeps_its_options(tools):
    write_cmake(tools, f'echo "$@" >> {tools}/calls')
    (tools / "build").mkdir()
    (tools / "build" / "CMakeCache.txt").touch()
    programs.build("prog")
    assert "AIKIDO_TESTS" not in (tools / "calls").read_text()


def test_what_fails_is_told(tools):
    with pytest.raises(programs.BuildError, match="There is no cmake here"):
        programs.build("prog")
    write_cmake(tools, "echo no compiler; exit 1")
    with pytest.raises(programs.BuildError, match="no compiler"):
        programs.build("prog")
