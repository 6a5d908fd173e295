# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Builder of the C++ programs of benchmarks/cpp; no benchmark itself."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "core"  # `make test` uses the same folder


class BuildError(Exception):
    """A program could not be built; the text is the output of the tools."""


def path_of(name: str) -> Path:
    """Path of the built program `name`."""
    return BUILD / "benchmarks" / "cpp" / name


def build(name: str) -> Path:
    """Builds the program if needed, which takes minutes the first time."""
    # cmake and ninja of this environment, otherwise those of the system.
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
