# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Builds the native module by calling CMake once; no flags of its own.

Settings are the AIKIDO_* options of CMakeLists.txt, from the environment or from pip:
`AIKIDO_CUDA=OFF pip install .` is `pip install . -C AIKIDO_CUDA=OFF`. This file is both
the setup script and, for the sake of -C, the build backend named in pyproject.toml.
"""

import contextlib
import importlib.util
import os
import re
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path

from setuptools import Extension, build_meta, setup
from setuptools.build_meta import *  # noqa: F403  (the hooks not overridden below)
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
OPTIONS = ("TORCH", "CUDA", "TESTS", "BENCHMARKS", "SANITIZE", "WERROR")
TORCH_MINORS = range(11, 16)


def tool(name):
    """Path of cmake or ninja: the one of this environment, else the one on PATH."""
    if importlib.util.find_spec(name):
        module = importlib.import_module(name)
        folder = getattr(module, f"{name.upper()}_BIN_DIR", None)
        folder = folder or getattr(module, "BIN_DIR", None)
        if folder and (Path(folder) / name).exists():
            return str(Path(folder) / name)
    return shutil.which(name)


def environment_with_torch():
    """The environment in which `python -c "import torch"` works, and torch's minor.

    pip's isolated build hides torch by a PYTHONPATH of its own; without that, the same
    interpreter sees the environment that pip installs into.
    """
    ask = [sys.executable, "-P", "-c", "import torch; print(torch.__version__)"]
    visible = dict(os.environ)
    unhidden = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    for env in (visible, unhidden):
        answer = subprocess.run(ask, env=env, capture_output=True, text=True, cwd=ROOT)
        if answer.returncode == 0:
            version = answer.stdout.split()[-1]
            major, minor = version.split(".")[:2]
            if major != "2" or int(minor) not in TORCH_MINORS:
                raise SystemExit(
                    f"aikido needs torch 2.{TORCH_MINORS[0]} to 2.{TORCH_MINORS[-1]} "
                    f"but found torch {version}. Install one of those and try again."
                )
            return env, f"{major}.{minor}"
    raise SystemExit(
        "aikido is compiled against the torch it will run with, and this build sees "
        "none. Run: pip install 'torch>=2.11,<2.16' setuptools wheel cmake ninja, then "
        "repeat with --no-build-isolation."
    )


def screen():
    """Stream whose output a person sees; use it in a `with`.

    pip shows what a build prints only with -v, or when the build has failed. So this is
    the standard error of pip itself, if that is a terminal or a pipe.
    """
    of_parent = f"/proc/{os.getppid()}/fd/2"
    try:
        there, here = os.stat(of_parent), os.fstat(2)
        is_hidden = (there.st_ino, there.st_rdev) != (here.st_ino, here.st_rdev)
        if is_hidden and not stat.S_ISREG(there.st_mode):
            return open(of_parent, "w")
    except OSError:
        pass
    return contextlib.nullcontext(sys.stdout)


def show_progress(lines, file, *, pause_s=5, clock=time.monotonic):
    """Copies ninja's lines to standard output, and to `file` how far it is.

    A line of its own at the first file, at the last one, and every `pause_s` between.
    """
    begin = shown_s = clock()
    for line in lines:
        print(line, end="", flush=file is sys.stdout)
        place = re.match(r"\[(\d+)/(\d+)\]", line)
        if not place or file is sys.stdout:
            continue
        done, total = map(int, place.groups())
        now = clock()
        if done not in (1, total) and now - shown_s < pause_s:
            continue
        shown_s = now
        text = f"{done} of {total} files, {100 * done // total} %, {now - begin:.0f} s"
        print(f"aikido: compiled {text}", file=file, flush=True)


def run(step, env):
    """Runs a command, and shows what it prints. Raises SystemExit if it fails."""
    env = env | {"NINJA_STATUS": "[%f/%t] "}
    out = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(step, env=env, text=True, **out) as process, screen() as file:
        show_progress(process.stdout, file)
    if process.returncode:
        raise SystemExit(f"This step failed: {' '.join(step)}")


class BuildWithCMake(build_ext):
    def build_extension(self, ext):
        cmake, ninja = tool("cmake"), tool("ninja")
        if not cmake or not ninja:
            raise SystemExit("The build needs both. Run: pip install cmake ninja")
        env, torch_minor = environment_with_torch()
        python = f"{sys.implementation.cache_tag}-torch{torch_minor}"
        folder = ROOT / "build" / python
        settings = {"AIKIDO_TESTS": "OFF", "AIKIDO_TORCH": "ON"}
        settings |= {
            f"AIKIDO_{name}": os.environ[f"AIKIDO_{name}"]
            for name in OPTIONS
            if os.environ.get(f"AIKIDO_{name}")
        }
        settings |= {"CMAKE_MAKE_PROGRAM": ninja, "Python_EXECUTABLE": sys.executable}
        defines = [f"-D{name}={value}" for name, value in settings.items()]
        # -U: a setting of an earlier build must not linger in the cache.
        steps = (
            [cmake, "-GNinja", f"-S{ROOT}", f"-B{folder}", "-UAIKIDO_*", *defines],
            [cmake, "--build", str(folder), "--target", "_C", "--parallel"],
        )
        for step in steps:
            run(step, env)
        target = Path(self.get_ext_fullpath(ext.name))
        target.parent.mkdir(parents=True, exist_ok=True)
        (built,) = (folder / "python").glob("_C.*")
        shutil.copy2(built, target)


def take(config_settings):
    """Moves -C settings of ours into the environment that build_extension reads."""
    for name in list(config_settings or {}):
        if name.startswith("AIKIDO_"):
            if name.removeprefix("AIKIDO_") not in OPTIONS:
                raise SystemExit(f"{name} is no setting; there are {OPTIONS}.")
            os.environ[name] = config_settings.pop(name)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    take(config_settings)
    return build_meta.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    take(config_settings)
    return build_meta.build_editable(
        wheel_directory, config_settings, metadata_directory
    )


def native_files():
    """Native files that a source archive must contain."""
    folders = [ROOT / name for name in ("csrc", "cuda")]
    found = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    return [str(p.relative_to(ROOT)) for p in [ROOT / "CMakeLists.txt", *sorted(found)]]


if __name__ == "__main__":
    setup(
        ext_modules=[Extension("aikido_torch._C", sources=[], depends=native_files())],
        cmdclass={"build_ext": BuildWithCMake},
    )
