# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""First steps of a new user: configure, build and install, run the README."""

import importlib.metadata as metadata
import io
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest
import torch
from packaging.requirements import Requirement

import aikido_torch

ROOT = Path(aikido_torch.__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TORCH = ".".join(torch.__version__.split(".")[:2])
BUILT = ROOT / "build" / f"{sys.implementation.cache_tag}-torch{TORCH}"
SETUP = runpy.run_path(str(ROOT / "setup.py"), run_name="setup")
BEFORE = """
import importlib.util
assert importlib.util.find_spec("pytest") is None, "the environment is not a fresh one"
"""


def run(*command, env=None, cwd=ROOT, timeout=240):
    told = subprocess.run(
        [str(part) for part in command],
        env=env,
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
    )
    assert told.returncode == 0, told.stdout[-4000:]
    return told.stdout


# ---- Names ---------------------------------------------------------------------------


def test_no_text_names_the_package_of_another_project():
    assert PROJECT["name"] == "aikido-torch"
    wrong = re.compile(r"(pip install|extra:?) aikido\b(?!-)|\baikido\[")
    files = run("git", "ls-files", "*.py", "*.md", "*.toml", "*.h", "*.cpp", "Makefile")
    for name in files.split():
        path = ROOT / name
        if path != Path(__file__) and path.exists():
            assert not wrong.search(path.read_text()), name


# ---- make ----------------------------------------------------------------------------


def test_the_core_compiles_while_torch_is_downloaded(tmp_path):
    told = run("make", "-n", "demo", f"DONE={tmp_path}")
    assert re.search(rf"-j 2 {tmp_path}/core {tmp_path}/torch", told)
    assert told.index("--target aikido_core") < told.index("--no-build-isolation")
    assert '-B "build/$tag-torch$minor"' in told  # setup.py continues in this folder


def test_the_demo_installs_and_compiles_only_what_it_needs(tmp_path):
    env = {k: v for k, v in os.environ.items() if k != "AIKIDO_CUDA"}
    demo, tests = (
        run("make", "-n", goal, f"DONE={tmp_path}", env=env)
        for goal in ("demo", "test")
    )
    extra = r"optional-dependencies.*' (\w+) \|"
    assert re.findall(extra, demo) == ["demo", "demo"]  # once in each part of make
    assert set(re.findall(extra, tests)) == {"demo", "test", "docs"}
    assert "torch" not in " ".join(PROJECT["optional-dependencies"]["demo"])
    cuda = r"AIKIDO_CUDA=(\w*) \\\n.*--editable"
    has_device = Path("/dev/nvidiactl").exists()
    assert re.findall(cuda, demo) == ["" if has_device else "OFF"]
    assert re.findall(cuda, tests) == [""]
    own = run("make", "-n", "demo", f"DONE={tmp_path}", env=env | {"AIKIDO_CUDA": "ON"})
    assert re.findall(cuda, own) == ["ON"]


# ---- Configuring ---------------------------------------------------------------------


def compilers_of(cmake, folder, *options):
    """Configures with CMake; maps the name of each source to its compile command."""
    ninja = shutil.which("ninja")
    generator = ["-G", "Ninja"] if ninja else []
    common = ["-DAIKIDO_TESTS=OFF", f"-DPython_EXECUTABLE={sys.executable}"]
    run(cmake, *generator, "-S", ROOT, "-B", folder, *common, *options)
    commands = json.loads((folder / "compile_commands.json").read_text())
    return {Path(entry["file"]).name: entry["command"] for entry in commands}


def last_standard(command):
    return re.findall(r"-std=(\S+)", command)[-1]


CMAKES = sorted({p for p in (shutil.which("cmake"), "/usr/bin/cmake") if p})
NVCC = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")


@pytest.mark.timeout(240)
@pytest.mark.parametrize("cmake", CMAKES)
@pytest.mark.parametrize("cuda", ["ON", "OFF"])
def test_every_source_is_compiled_as_cpp_20(tmp_path, cmake, cuda):
    if not Path(cmake).exists() or (cuda == "ON" and not NVCC):
        pytest.skip("needs this CMake, and the CUDA toolkit if CUDA is on")
    torch_too = "OFF" if cuda == "ON" else "ON"
    options = (f"-DAIKIDO_CUDA={cuda}", f"-DAIKIDO_TORCH={torch_too}")
    commands = compilers_of(cmake, tmp_path / "build", *options)
    assert {name: last_standard(text) for name, text in commands.items()} == (
        dict.fromkeys(commands, "c++20")
    )
    assert ("ipc.cpp" in commands and "reduce.cu" in commands) == (cuda == "ON")


# ---- Building ------------------------------------------------------------------------


def test_progress_is_shown_at_the_first_and_last_file_and_every_few_seconds(capsys):
    now, file = iter(range(1000)), io.StringIO()
    lines = ["-- configuring\n", *(f"[{n}/20] Building {n}\n" for n in range(1, 21))]
    SETUP["show_progress"](lines, file, pause_s=8, clock=lambda: next(now))
    assert file.getvalue().splitlines() == [
        "aikido: compiled 1 of 20 files, 5 %, 1 s",
        "aikido: compiled 9 of 20 files, 45 %, 9 s",
        "aikido: compiled 17 of 20 files, 85 %, 17 s",
        "aikido: compiled 20 of 20 files, 100 %, 20 s",
    ]
    assert capsys.readouterr().out == "".join(lines)


def test_a_build_with_captured_output_still_shows_its_progress():
    # Like pip, the parent reads the output of the build and does not show it.
    build = (
        "import runpy, sys; setup = runpy.run_path('setup.py', run_name='setup');"
        "step = [sys.executable, '-c', 'print(\"[1/1] Building\")'];"
        "import os; setup['run'](step, dict(os.environ))"
    )
    pip = (
        "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]], "
        "stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True)"
    )
    told = run(sys.executable, "-c", pip, build)
    assert re.fullmatch(r"aikido: compiled 1 of 1 files, 100 %, \d+ s\n", told)


# ---- Installing ----------------------------------------------------------------------


def required(requirements):
    """Installed distributions that the requirements need, also indirectly."""
    found, left = {}, [*requirements]
    while left:
        requirement = Requirement(left.pop())
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        distribution = metadata.distribution(requirement.name)
        if distribution.name not in found:
            found[distribution.name] = distribution
            left += distribution.requires or []
            for extra in requirement.extras:
                left += extras_of(distribution, extra)
    return found.values()


def extras_of(distribution, extra):
    wanted = (Requirement(text) for text in distribution.requires or [])
    return [
        f"{r.name}{r.specifier}"
        for r in wanted
        if r.marker
        and r.marker.evaluate({"extra": extra})
        and not r.marker.evaluate({"extra": ""})
    ]


def fresh_environment(folder):
    """A virtual environment with only links to the requirements of aikido-torch."""
    venv.create(folder, with_pip=False, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    for distribution in required(PROJECT["dependencies"]):
        tops = {file.parts[0] for file in distribution.files or []}
        for top in tops - {"..", "__pycache__"}:
            if not (site / top).exists():
                (site / top).symlink_to(distribution.locate_file(top))
    return folder / "bin" / "python"


@pytest.mark.timeout(300)
def test_the_readme_runs_in_a_fresh_environment_with_the_wheel(tmp_path):
    if not BUILT.exists() or Path(sys.prefix).resolve() != (ROOT / ".venv").resolve():
        pytest.skip("would compile everything: the extension was not built by make")
    env = {k: v for k, v in os.environ.items() if not k.startswith("MAKE")}
    run("make", "wheel", f"WHEELS={tmp_path}", env=env)
    (wheel,) = tmp_path.glob("aikido_torch-*.whl")
    python = fresh_environment(tmp_path / "fresh")
    # Without an index, pip fails if a requirement is not installed.
    options = ("--no-index", "--no-compile", "--quiet")
    run(sys.executable, "-m", "pip", "--python", python, "install", *options, wheel)

    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    program = tmp_path / "program.py"
    program.write_text(BEFORE + blocks[0])
    clean = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}
    launch = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    told = run(python, *launch, program, env=clean, cwd=tmp_path)
    assert "in 100 calls" in told
    told = run(python.with_name("aikido"), "--version", env=clean, cwd=tmp_path)
    assert told == f"aikido-torch {PROJECT['version']}\n"
