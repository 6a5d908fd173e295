# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""No benchmark: builds and finds the C++ programs of benchmarks/cpp."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "core"  # where `make test` builds them, too


class BuildError(Exception):
    """A program could not be built; the text is what the tools said."""


def path_of(name: str) -> Path:
    """Where the program `name` is once it is built."""
    return BUILD / "benchmarks" / "cpp" / name


def build(name: str) -> Path:
    """Brings the program up to date, which takes minutes the first time."""
    # cmake and ninja of this environment, else those of the system.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    configure = ["cmake", "-S", str(ROOT), "-B", str(BUILD), "-DAIKIDO_BENCHMARKS=ON"]
    if not (BUILD / "CMakeCache.txt").exists():
        configure += ["-DAIKIDO_TORCH=OFF", "-DAIKIDO_TESTS=OFF"]
        if shutil.which("ninja", path=path):
            configure += ["-G", "Ninja"]
    for command in (
        configure,
        ["cmake", "--build", str(BUILD), "--target", name, "--parallel", "2"],
    ):
        tool = shutil.which(command[0], path=path)
        if tool is None:
            raise BuildError("There is no cmake here, which builds the C++ programs.")
        done = subprocess.run(
            [tool, *command[1:]],
            env=os.environ | {"PATH": path},
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            raise BuildError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return path_of(name)
