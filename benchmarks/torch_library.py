# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Compiler of sources with torch's headers, for benchmarks and tests; no benchmark
itself.

It calls one compiler, without cmake or ninja, because the libraries are small.
"""

import hashlib
import os
import subprocess
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from benchmarks.programs import ROOT, BuildError


def path_of(
    name: str, sources: Sequence[Path], *, read: Sequence[Path] = (), options: str = ""
) -> Path:
    """Path of the built library, which depends on the sources, the options and torch.

    `read`: headers of aikido that the sources include.
    """
    import torch  # not at the top, because some callers only need other programs

    what = hashlib.sha256(f"{torch.__version__} {torch.__path__[0]} {options}".encode())
    what.update(sysconfig.get_config_var("EXT_SUFFIX").encode())
    for path in (*sources, *read):
        what.update(path.read_bytes())
    return ROOT / "build" / name / f"{what.hexdigest()[:16]}.so"


def build(
    name: str, sources: Sequence[Path], *, read: Sequence[Path] = (), options: str = ""
) -> Path:
    """Compiles the library if it does not exist, in half a minute. Raises BuildError.

    All sources are compiled together, because most of the time goes to torch's headers.
    `options`: options for the compiler, besides the options that torch needs.
    """
    import torch

    path = path_of(name, sources, read=read, options=options)
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(f".{os.getpid()}")
    root = Path(torch.__path__[0])
    folders = [ROOT / "csrc", root / "include"]
    folders += [root / "include/torch/csrc/api/include"]
    folders += [Path(sysconfig.get_paths()["include"])]
    command = [os.environ.get("CXX", "c++"), "-std=c++20", "-fPIC", "-shared"]
    command += ["-fvisibility=hidden", *(f"-I{folder}" for folder in folders)]
    command += [f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"]
    command += [*options.split(), "-x", "c++", "-", "-o", str(new), f"-L{root}/lib"]
    command += ["-lc10", "-ltorch_cpu", "-ltorch", "-ltorch_python"]
    try:
        done = subprocess.run(
            command,
            input="".join(f'#include "{source}"\n' for source in sources),
            capture_output=True,
            text=True,
        )
    except OSError as error:
        raise BuildError(f"{command[0]} cannot be started: {error.strerror}.") from None
    if done.returncode != 0:
        raise BuildError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    new.rename(path)
    return path
