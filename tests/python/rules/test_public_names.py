# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Public names are few and documented, and `__all__` lists them."""

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

import aikido_torch
from rules import tree

# Public names besides the packages and the classes of errors. Those classes are not
# counted, since one stands for each way to react to a failure of the engine. A new name
# needs a reader of docs/ who uses it; the types of results are not exported.
MOST_NAMES = 60


def all_differences(package: ModuleType) -> list[str]:
    """Modules with a missing or wrong `__all__`, and names without a docstring."""
    found = []
    for info in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        module = importlib.import_module(info.name)
        leaf = info.name.rsplit(".", 1)[-1]
        names = getattr(module, "__all__", None)
        if names is None:
            if not leaf.startswith("_"):
                found.append(f"{info.name} has no __all__")
            continue
        if names != sorted(names):
            found.append(f"{info.name}: __all__ is not in order")
        for name in names:
            value = getattr(module, name, None)
            if value is None:
                found.append(f"{info.name}: __all__ names {name}, which is not there")
            elif not inspect.ismodule(value) and not inspect.getdoc(value):
                found.append(f"{info.name}.{name} has no docstring")
    return found


def public_names(package: ModuleType) -> dict[str, object]:
    """Names in `__all__` of the public modules, with their shortest path."""
    found: dict[int, str] = {}
    values: dict[str, object] = {}
    infos = pkgutil.walk_packages(package.__path__, package.__name__ + ".")
    public = [i.name for i in infos if "._" not in i.name and ".__" not in i.name]
    for path in [package.__name__, *public]:
        module = importlib.import_module(path)
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name)
            if not inspect.ismodule(value) and id(value) not in found:
                found[id(value)] = f"{path}.{name}"
                values[f"{path}.{name}"] = value
    return values


def is_error(value: object) -> bool:
    return inspect.isclass(value) and issubclass(value, BaseException)


def code_in(markdown: str) -> str:
    """Text of the code spans and code blocks of a page."""
    return "\n".join(re.findall(r"```.*?```|`[^`\n]+`", markdown, re.DOTALL))


def documents(root: Path) -> str:
    """Code of the pages, of their examples, and of docstrings on the API page."""
    pages = [root / "README.md", *sorted((root / "docs").glob("*.md"))]
    code = [code_in(p.read_text()) for p in pages if p.name != "changelog.md"]
    code += [p.read_text() for p in sorted((root / "examples").glob("*.py"))]
    api = (root / "docs/api.md").read_text()
    for module in re.findall(r"automodule:: ([\w.]+)", api):
        code.append(code_in(inspect.getdoc(importlib.import_module(module)) or ""))
    return "\n".join(code)


def undocumented(names: Iterable[str], text: str) -> list[str]:
    words = set(re.findall(r"\w+", text))
    return [name for name in names if name.rsplit(".", 1)[-1] not in words]


def test_public_names_are_few():
    names = [n for n, v in public_names(aikido_torch).items() if not is_error(v)]
    assert len(names) <= MOST_NAMES, "\n".join(names)


def test_each_public_name_stands_in_the_documents():
    text = documents(tree.REPOSITORY)
    assert undocumented(public_names(aikido_torch), text) == []


def test_each_public_package_has_its_place_on_the_page_of_the_api():
    api = (tree.REPOSITORY / "docs/api.md").read_text()
    modules = {path.rsplit(".", 1)[0] for path in public_names(aikido_torch)}
    assert modules == set(re.findall(r"automodule:: ([\w.]+)", api))


def test_a_name_that_is_not_documented_is_named():
    page = "A word like late is no code. `wait_all` is, and so is:\n```\nskip(1)\n```"
    names = ["a.late", "a.wait_all", "a.b.skip", "a.wait"]
    assert undocumented(names, code_in(page)) == ["a.late", "a.wait"]


def test_every_module_lists_and_documents_its_public_names():
    assert all_differences(aikido_torch) == []
    assert aikido_torch.__all__ == sorted(aikido_torch.__all__)
    for name in aikido_torch.__all__:
        assert getattr(aikido_torch, name) is not None


def test_a_wrong_all_is_named(tmp_path, monkeypatch):
    sources = {
        "samplepackage/__init__.py": "",
        "samplepackage/a.py": "__all__ = ['y', 'x']\ndef x(): pass\n",
        "samplepackage/b.py": "",
        "samplepackage/_c.py": "",
    }
    tree.write(Path(tmp_path), sources)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert all_differences(importlib.import_module("samplepackage")) == [
        "samplepackage.a: __all__ is not in order",
        "samplepackage.a: __all__ names y, which is not there",
        "samplepackage.a.x has no docstring",
        "samplepackage.b has no __all__",
    ]
