# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Each source has a test file at the place that the path of the source implies."""

from pathlib import Path

from rules import tree


def mirror_of(path: Path, root: Path) -> list[Path]:
    """Possible paths of the test of a source; one of them must exist."""
    name = path.relative_to(root)
    if name.parts[0] == "aikido_torch":
        folder = root / "tests/python" / Path(*name.parts[1:-1])
        return [folder / f"test_{path.stem.strip('_')}.py"]
    if name.parts[0] == "csrc":
        name = Path(*name.parts[1:])
    folder = root / "tests/cpp" / name.parent
    return [folder / f"{path.stem}_test{suffix}" for suffix in (".cpp", ".cu")]


def unmirrored(root: Path) -> list[str]:
    sources = [
        *tree.files(root, "csrc", "cuda", suffixes=(".cpp", ".cu")),
        *tree.files(root, "aikido_torch", suffixes=(".py",)),
    ]
    found = []
    for path in sources:
        wanted = mirror_of(path, root)
        if any(test.is_file() for test in wanted):
            continue
        # The __init__.py of a subpackage only lists names.
        if path.name == "__init__.py" and path.parent != root / "aikido_torch":
            continue
        if not tree.is_excused("mirror", path, root):
            test = wanted[0].relative_to(root)
            found.append(f"{path.relative_to(root)}: has no {test}")
    return found


def test_every_source_of_this_repository_has_its_test():
    assert unmirrored(tree.REPOSITORY) == []


def test_no_exception_of_any_rule_is_stale():
    assert tree.stale_exceptions(tree.REPOSITORY) == []


def test_an_exception_whose_file_is_gone_is_named(tmp_path):
    assert any("does not exist" in line for line in tree.stale_exceptions(tmp_path))


def test_sources_without_a_test_are_named(tmp_path):
    tree.write(
        tmp_path,
        {
            "csrc/straggler/skip.cpp": "",
            "csrc/straggler/late.cpp": "",
            "tests/cpp/straggler/late_test.cpp": "",
            "cuda/reduce.cu": "",
            "aikido_torch/_backend.py": "",
            "aikido_torch/straggler/__init__.py": "",
            "aikido_torch/straggler/report.py": "",
            "aikido_torch/ordering/plan.py": "",
            "tests/python/ordering/test_plan.py": "",
        },
    )
    assert unmirrored(tmp_path) == [
        "csrc/straggler/skip.cpp: has no tests/cpp/straggler/skip_test.cpp",
        "cuda/reduce.cu: has no tests/cpp/cuda/reduce_test.cpp",
        "aikido_torch/_backend.py: has no tests/python/test_backend.py",
        "aikido_torch/straggler/report.py: has no "
        "tests/python/straggler/test_report.py",
    ]


def test_an_excused_source_needs_no_test(tmp_path):
    tree.write(tmp_path, {"csrc/bind/module.cpp": ""})
    assert unmirrored(tmp_path) == []
