# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Allowed includes and imports between the parts of the project.

If the code and the tables differ, change the code.
"""

import ast
import re
from pathlib import Path

import pytest

from rules import tree

# Part to the parts that it may include. "part/file" allows only that header.
_DECISIONS = ("trace", "kernels", "straggler", "ordering", "pipeline")
_ENGINE = ("base", *_DECISIONS, "transport", "membership", "collectives")
PARTS: dict[str, tuple[str, ...]] = {
    "base": (),
    **dict.fromkeys(_DECISIONS, ("base",)),
    "cuda": ("base",),
    "transport": ("base", "trace"),
    "membership": ("base", "trace", "transport"),
    "collectives": (
        "base", "trace", "transport", "kernels", "straggler", "membership/view",
        "membership/view_message",
    ),
    "engine": _ENGINE,
    "c10d": (*_ENGINE, "engine", "cuda"),
    "bind": (*_ENGINE, "engine", "cuda", "c10d"),
}  # fmt: skip

# Foreign headers and the only parts that may include them.
FOREIGN = (
    (r"(torch|c10|ATen|caffe2)/.*", "torch", ("c10d", "bind")),
    (r"pybind11/.*|Python\.h", "Python", ("bind",)),
    (r"(cuda|nccl|cub/|thrust/).*", "CUDA", ("cuda", "c10d")),
    (
        r"sys/(socket|epoll|un|eventfd)\.h|(netinet|arpa)/.*|netdb\.h|poll\.h",
        "sockets",
        ("base", "transport", "membership", "engine", "c10d"),
    ),
    (
        r"thread|mutex|shared_mutex|condition_variable|future|pthread\.h",
        "threads",
        ("base", "trace", "transport", "membership", "engine", "c10d", "bind", "cuda"),
    ),
)

# Subpackage or leaf module of aikido_torch to the modules of the package that it may
# import. `_C` is always allowed. Modules that are not keys may import anything.
_LEAVES = (
    "options",
    "errors",
    "env",
    "_colors",
    "_figures",
    "_hook",
    "_names",
    "_rows",
    "_steps",
)
MODULES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(_LEAVES, _LEAVES),
    **dict.fromkeys(("straggler", "elastic", "io_tuner"), _LEAVES),
    "trace": (*_LEAVES, "_backend"),
    "profile": _LEAVES,
    "ordering": (*_LEAVES, "profile"),
    "rebalance": (*_LEAVES, "straggler"),
    "pipeline": (
        *_LEAVES,
        "_backend",
        "_calls",
        "_own_groups",
        "_seal",
        "profile",
        "straggler",
    ),
    "data": (*_LEAVES, "straggler"),
    "recovery": (*_LEAVES, "_backend", "_job_ranks", "straggler"),
    "ddp": (
        *_LEAVES,
        "_backend",
        "_job_ranks",
        "_own_groups",
        "data",
        "recovery",
        "straggler",
    ),
    "overlap": (*_LEAVES, "_backend", "ordering", "recovery", "straggler"),
}
TOP_PACKAGES = ("testing",)

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.MULTILINE)


def part_of(path: Path, root: Path) -> str:
    top, *rest = path.relative_to(root).parts
    return "cuda" if top == "cuda" else rest[0]


def include_breaches(root: Path) -> list[str]:
    found = []
    for path in tree.files(root, "csrc", "cuda", suffixes=tree.CPP):
        part = part_of(path, root)
        name = path.relative_to(root)
        if part not in PARTS:
            found.append(f"{name}: no part is called {part}; add it to the table")
            continue
        text = tree.without_comments(path.read_text(), keep_strings=True)
        for match in _INCLUDE.finditer(text):
            place = f"{name}:{tree.line_of(text, match.start())}"
            trouble = _trouble_of_include(part, *match.groups())
            if trouble:
                found.append(f"{place}: {part} must not include {trouble}")
    return found


def late_own_headers(root: Path) -> list[str]:
    """Sources whose first include is not their own header.

    A header that comes first must compile without other headers.
    """
    found = []
    for path in tree.files(root, "csrc", "cuda", suffixes=(".cpp", ".cu")):
        name = path.relative_to(root)
        if not path.with_suffix(".h").is_file():
            continue
        own = f"{part_of(path, root)}/{path.stem}.h"
        text = tree.without_comments(path.read_text(), keep_strings=True)
        first = _INCLUDE.search(text)
        if first is None or first[2] != own:
            found.append(f'{name}: "{own}" must be what it includes first')
    return found


def _trouble_of_include(part: str, bracket: str, header: str) -> str | None:
    if bracket == "<":
        for pattern, what, allowed in FOREIGN:
            if re.fullmatch(pattern, header) and part not in allowed:
                return f"<{header}> ({what})"
        return None
    target = header.split("/")[0]
    if "/" not in header or target not in PARTS:
        return f'"{header}"; ours are written "part/file.h", others <file.h>'
    allowed = PARTS[part]
    if target in (part, *allowed) or header.removesuffix(".h") in allowed:
        return None
    return f'"{header}"; it may use {", ".join(allowed) or "nothing"}'


def import_breaches(root: Path) -> list[str]:
    package = root / "aikido_torch"
    found = []
    for path in tree.files(root, "aikido_torch", suffixes=tree.PYTHON):
        first = path.relative_to(package).parts[0]
        owner = first.split(".")[0]
        name = path.relative_to(root)
        if first == owner and owner not in (*MODULES, *TOP_PACKAGES):
            found.append(f"{name}: no package is called {owner}; add it to the table")
        if owner not in MODULES:
            continue
        for target, line in _own_imports(path, root):
            if target not in ("_C", owner, *MODULES[owner]):
                found.append(f"{name}:{line}: {owner} must not import {target}")
    return found


def _own_imports(path: Path, root: Path) -> list[tuple[str, int]]:
    """(first name below aikido_torch, line) of every import of our own package."""
    dotted = path.relative_to(root).with_suffix("").parts
    found = []
    for statement in ast.walk(ast.parse(path.read_text())):
        if isinstance(statement, ast.Import):
            names = [alias.name for alias in statement.names]
        elif isinstance(statement, ast.ImportFrom):
            base = statement.module or ""
            if statement.level:
                above = dotted[: len(dotted) - statement.level]
                base = ".".join([*above, base] if base else above)
            names = [f"{base}.{alias.name}" for alias in statement.names]
        else:
            continue
        for name in names:
            parts = name.split(".")
            if parts[0] == "aikido_torch" and len(parts) > 1:
                found.append((parts[1], statement.lineno))
    return found


def test_includes_of_this_repository_obey_the_layers():
    assert include_breaches(tree.REPOSITORY) == []


def test_imports_of_this_repository_obey_the_layers():
    assert import_breaches(tree.REPOSITORY) == []


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("csrc/straggler/skip.h", '#include "kernels/reduce.h"'),
        ("csrc/straggler/skip.h", "#include <thread>"),
        ("csrc/straggler/skip.h", "#include <sys/socket.h>"),
        ("csrc/collectives/ring.cpp", '#include "engine/engine.h"'),
        ("csrc/collectives/ring.cpp", '#include "membership/quorum.h"'),
        ("csrc/engine/engine.cpp", "  #  include <torch/types.h>"),
        ("csrc/engine/engine.cpp", '#include "cuda/reduce.h"'),
        ("csrc/c10d/work.h", "#include <pybind11/pybind11.h>"),
        ("csrc/c10d/work.h", '#include "work_impl.h"'),
        ("csrc/kernels/reduce.cpp", "#include <cuda_fp16.h>"),
        ("csrc/novel/part.h", ""),
        ("cuda/reduce.cu", "#include <c10/cuda/CUDAStream.h>"),
    ],
)
def test_a_forbidden_include_is_named(tmp_path, file, line):
    tree.write(tmp_path, {file: f"// text\n{line}\n"})
    (breach,) = include_breaches(tmp_path)
    assert breach.startswith(file)


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("csrc/straggler/skip.cpp", '#include "straggler/skip.h"'),
        ("csrc/straggler/skip.cpp", "#include <vector>"),
        ("csrc/collectives/ring.cpp", '#include "membership/view.h"'),
        ("csrc/collectives/ring.cpp", '// #include "engine/engine.h"'),
        ("csrc/c10d/work.h", "#include <torch/csrc/distributed/c10d/Work.hpp>"),
        ("csrc/bind/module.cpp", "#include <pybind11/pybind11.h>"),
        ("cuda/reduce.cu", "#include <cuda_runtime_api.h>"),
    ],
)
def test_an_allowed_include_passes(tmp_path, file, line):
    tree.write(tmp_path, {file: f"{line}\n"})
    assert include_breaches(tmp_path) == []


def test_sources_of_this_repository_begin_with_their_header():
    assert late_own_headers(tree.REPOSITORY) == []


@pytest.mark.parametrize(
    ("text", "is_first"),
    [
        ('// "kernels/skip.h"\n#include "straggler/skip.h"\n#include <vector>', True),
        ('#include <vector>\n#include "straggler/skip.h"', False),
        ("", False),
    ],
)
def test_a_source_begins_with_its_header(tmp_path, text, is_first):
    tree.write(tmp_path, {"csrc/straggler/skip.h": "", "csrc/straggler/skip.cpp": text})
    assert (late_own_headers(tmp_path) == []) == is_first


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("ordering/plan.py", "from aikido_torch.straggler import report"),
        ("ordering/plan.py", "from aikido_torch import straggler"),
        ("ordering/plan.py", "import aikido_torch.ddp"),
        ("ordering/plan.py", "from ..straggler import report"),
        ("options.py", "from aikido_torch import ddp"),
        ("ddp.py", "def late():\n    from aikido_torch.pipeline import stage"),
    ],
)
def test_a_forbidden_import_is_named(tmp_path, file, line):
    tree.write(tmp_path, {f"aikido_torch/{file}": f"{line}\n"})
    (breach,) = import_breaches(tmp_path)
    assert "must not import" in breach


def test_a_package_outside_the_table_is_named(tmp_path):
    tree.write(tmp_path, {"aikido_torch/novel/part.py": ""})
    (breach,) = import_breaches(tmp_path)
    assert "no package is called novel" in breach


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("rebalance/helper.py", "from aikido_torch.straggler import report"),
        ("overlap.py", "from aikido_torch import _C, options, ordering"),
        ("ordering/plan.py", "from .capture import observe"),
        ("_backend.py", "from aikido_torch.straggler import report"),
    ],
)
def test_an_allowed_import_passes(tmp_path, file, line):
    tree.write(tmp_path, {f"aikido_torch/{file}": f"{line}\n"})
    assert import_breaches(tmp_path) == []
