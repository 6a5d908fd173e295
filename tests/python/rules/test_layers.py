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
_DECISIONS = ("trace", "kernels", "straggler", "cost", "pipeline")
_ENGINE = ("base", "trace", "straggler", "membership", "collectives")
PARTS: dict[str, tuple[str, ...]] = {
    "base": (),
    **dict.fromkeys(_DECISIONS, ("base",)),
    "ordering": ("base", "cost"),
    "reassign": ("base",),
    "cuda": ("base",),
    "transport": ("base", "trace"),
    "membership": ("base", "transport"),
    "collectives": (
        "base", "transport", "kernels", "straggler", "membership/view",
        "membership/view_message",
    ),
    "engine": (*_ENGINE, "cost", "reassign", "transport"),
    "c10d": (*_ENGINE, "kernels", "engine", "cuda"),
    "bind": (
        "base", *_DECISIONS, "ordering", "transport", "collectives", "engine", "c10d",
    ),
}  # fmt: skip

# Foreign headers and the only parts that may include them.
FOREIGN = (
    (r"(torch|c10|ATen|caffe2)/.*", "torch", ("c10d", "bind")),
    (r"pybind11/.*|Python\.h", "Python", ("bind",)),
    (r"(cuda|nccl|cub/|thrust/).*", "CUDA", ("cuda", "c10d")),
    (
        r"sys/(socket|epoll|un|eventfd)\.h|(netinet|arpa)/.*|netdb\.h|poll\.h",
        "sockets",
        ("transport", "c10d"),
    ),
    (
        r"thread|mutex|shared_mutex|condition_variable|future|pthread\.h",
        "threads",
        ("base", "trace", "transport", "engine", "c10d", "cuda"),
    ),
)

# Packages and modules of aikido_torch by floor, the lowest first. An import goes to a
# lower floor. Packages without a folder are still to come.
_LEAVES = (
    "options",
    "errors",
    "_colors",
    "_end_calls",
    "_figures",
    "_hook",
    "_moved",
    "_names",
    "_repr",
    "_rows",
    "_seal",
    "_steps",
    "_store_end",
    "_tags",
    "_weights",
)
_BACKEND = (
    "_address",
    "_backend",
    "_inner",
    "_ipc",
    "_job_ranks",
    "_links",
    "_members",
    "_own_groups",
)
_FACE = ("__init__", "__main__", "doctor", "testing")
FLOORS = (
    _LEAVES,
    (*_BACKEND, "profile"),
    ("straggler", "trace", "data", "recovery", "market"),
    ("_calls",),
    ("ordering", "pipeline", "reassign", "io"),
    ("ddp", "overlap", "elastic"),
    _FACE,
)
# Imports on one floor, each with its reason.
BESIDE = {
    ("data", "straggler"): "the policy says how many backups a data shard has",
    ("recovery", "straggler"): "ranks agree on the policy before the first step",
}

# Package or module of aikido_torch to its allowed imports. `_C` is always allowed. The
# face may import anything.
MODULES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(_LEAVES, _LEAVES),
    **dict.fromkeys(_BACKEND, (*_LEAVES, *_BACKEND)),
    "profile": _LEAVES,
    "straggler": _LEAVES,
    "trace": (*_LEAVES, "_backend"),
    "data": (*_LEAVES, "straggler"),
    "market": ("_figures",),
    "recovery": (*_LEAVES, "_backend", "_job_ranks", "straggler"),
    "_calls": (*_LEAVES, "_backend", "straggler"),
    "ordering": (*_LEAVES, "profile"),
    "pipeline": (
        *_LEAVES,
        "_backend",
        "_calls",
        "_own_groups",
        "profile",
        "straggler",
    ),
    "reassign": (*_LEAVES, "data", "recovery"),
    "ddp": (
        *_LEAVES,
        "_backend",
        "_job_ranks",
        "_own_groups",
        "data",
        "reassign",
        "recovery",
        "straggler",
    ),
    "elastic": (*_LEAVES, *_BACKEND, "_calls", "data", "recovery", "straggler"),
    "overlap": (*_LEAVES, "_backend", "ordering", "recovery", "straggler"),
}

# Folders of a package, the lowest first. A folder imports only from the folders before
# it, and not from the top of its package.
WINGS = {
    "pipeline": ("plan", "runtime"),
    "trace": ("record", "analyze", "export"),
}

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


def unused_grants(root: Path) -> list[str]:
    """Entries of the tables for headers that no file of the part includes."""
    used: set[tuple[str, str]] = set()
    for path in tree.files(root, "csrc", "cuda", suffixes=tree.CPP):
        part = part_of(path, root)
        text = tree.without_comments(path.read_text(), keep_strings=True)
        for bracket, header in _INCLUDE.findall(text):
            if bracket == "<":
                used |= {
                    (part, what)
                    for pattern, what, _ in FOREIGN
                    if re.fullmatch(pattern, header)
                }
            else:
                used |= {(part, header.split("/")[0]), (part, header[: -len(".h")])}
    granted = {(part, other) for part, others in PARTS.items() for other in others}
    granted |= {(part, what) for _, what, parts in FOREIGN for part in parts}
    return [f"{part} does not include {other}" for part, other in granted - used]


def late_own_headers(root: Path) -> list[str]:
    """Sources whose first include is not their own header.

    A header that comes first must compile without other headers.
    """
    found = []
    for path in tree.files(root, "csrc", "cuda", suffixes=(".cpp", ".cu")):
        name = path.relative_to(root)
        if not path.with_suffix(".h").is_file():
            continue
        folder = "" if name.parts[0] == "cuda" else "csrc"
        own = path.with_suffix(".h").relative_to(root / folder).as_posix()
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
        ours = '"part/file.h" or "part/folder/file.h"'
        return f'"{header}"; ours are written {ours}, others <file.h>'
    allowed = PARTS[part]
    if target in (part, *allowed) or header.removesuffix(".h") in allowed:
        return None
    return f'"{header}"; it may use {", ".join(allowed) or "nothing"}'


def import_breaches(root: Path) -> list[str]:
    package = root / "aikido_torch"
    found = []
    for path in tree.files(root, "aikido_torch", suffixes=(".py",)):
        owner, *rest = path.relative_to(package).with_suffix("").parts
        name = path.relative_to(root)
        if owner not in (*MODULES, *_FACE):
            found.append(f"{name}: no package is called {owner}; add it to the tables")
        for target, line in _own_imports(path, root):
            trouble = _trouble_of_import((owner, *rest), target)
            if trouble:
                found.append(f"{name}:{line}: {trouble}")
    return found


def _trouble_of_import(module: tuple[str, ...], target: tuple[str, ...]) -> str | None:
    owner, wing = (*module, "")[:2]
    if owner not in MODULES:
        return None
    if target[0] not in ("_C", owner, *MODULES[owner]):
        return f"{owner} must not import {target[0]}"
    wings = WINGS.get(owner, ())
    if target[0] != owner or wing not in wings:
        return None
    below = wings[: wings.index(wing) + 1]
    if (*target, "")[1] in below:
        return None
    return f"{owner}/{wing} must not import {'.'.join(target)}"


def upward_grants(
    modules: dict[str, tuple[str, ...]], floors: tuple[tuple[str, ...], ...]
) -> list[str]:
    """Grants of the table of modules that do not lead to a lower floor."""
    floor_of = {name: i for i, floor in enumerate(floors) for name in floor}
    inner = (_LEAVES, _BACKEND)
    return [
        f"{owner} must not import {target}, which is not on a lower floor"
        for owner, targets in modules.items()
        for target in targets
        if floor_of[target] >= floor_of[owner]
        and (owner, target) not in BESIDE
        and not any(owner in group and target in group for group in inner)
    ]


def _own_imports(path: Path, root: Path) -> list[tuple[tuple[str, ...], int]]:
    """(names below aikido_torch, line) of every import of our own package."""
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
            top, *parts = name.split(".")
            if top == "aikido_torch" and parts:
                found.append((tuple(parts), statement.lineno))
    return found


def test_includes_of_this_repository_obey_the_layers():
    assert include_breaches(tree.REPOSITORY) == []


def test_no_part_is_granted_an_include_that_it_does_not_have():
    assert unused_grants(tree.REPOSITORY) == []


def test_an_unused_grant_is_named(tmp_path):
    tree.write(tmp_path, {"csrc/transport/link.h": '#include "base/status.h"'})
    unused = unused_grants(tmp_path)
    assert "transport does not include trace" in unused
    assert "transport does not include base" not in unused


def test_imports_of_this_repository_obey_the_layers():
    assert import_breaches(tree.REPOSITORY) == []


def test_packages_are_allowed_only_what_lies_below_them():
    assert upward_grants(MODULES, FLOORS) == []
    assert set(MODULES) <= {name for floor in FLOORS for name in floor}


@pytest.mark.parametrize(
    ("owner", "target"),
    [
        ("straggler", "ddp"),
        ("trace", "straggler"),
        ("straggler", "data"),
        ("profile", "_backend"),
        ("ddp", "overlap"),
    ],
)
def test_a_grant_that_leads_up_is_named(owner, target):
    (breach,) = upward_grants({owner: (target,)}, FLOORS)
    assert breach.startswith(f"{owner} must not import {target}")


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
    ("include", "is_first"),
    [("transport/loop/event_loop.h", True), ("transport/event_loop.h", False)],
)
def test_the_header_of_a_source_in_a_folder_of_a_part_has_its_path(
    tmp_path, include, is_first
):
    source = "csrc/transport/loop/event_loop.cpp"
    text = f'#include "{include}"\n'
    tree.write(tmp_path, {source.replace(".cpp", ".h"): "", source: text})
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
        ("_backend.py", "from aikido_torch.straggler import report"),
        ("ddp/_handle.py", "from aikido_torch.overlap import _planner"),
        ("pipeline/plan/_cut.py", "from aikido_torch.pipeline.runtime import _sum"),
        ("pipeline/runtime/_sum.py", "from aikido_torch.pipeline import cut"),
        ("trace/record/_log.py", "from aikido_torch.trace.analyze import _gaps"),
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
        ("data/_helper.py", "from aikido_torch.straggler import report"),
        ("overlap.py", "from aikido_torch import _C, options, ordering"),
        ("ordering/plan.py", "from .capture import observe"),
        ("doctor.py", "from aikido_torch.straggler import report"),
        ("pipeline/runtime/_sum.py", "from aikido_torch.pipeline.plan import _cut"),
        ("pipeline/__main__.py", "from aikido_torch.pipeline import runtime"),
        ("trace/export/_html.py", "from aikido_torch.trace.record._dump import Dump"),
    ],
)
def test_an_allowed_import_passes(tmp_path, file, line):
    tree.write(tmp_path, {f"aikido_torch/{file}": f"{line}\n"})
    assert import_breaches(tmp_path) == []
