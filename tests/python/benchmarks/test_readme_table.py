# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import re
from pathlib import Path

import pytest

from benchmarks.readme_table import (
    BEGIN,
    END,
    PAGE,
    README,
    measured,
    measured_on_gpu,
    put_between_marks,
)

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"

MODE = {
    "seconds": 20.0,
    "steps_per_second": 15.0,
    "seconds_to_target": 5.0,
    "accuracy": 0.985,
    "skipped": [0, 0, 0, 0],
    "hashes_equal": True,
}
DEMO = {
    "wait_all": MODE,
    "skip": MODE | {"seconds": 5.0, "skipped": [0, 0, 0, 9], "seconds_to_target": None},
}
ALLREDUCE = [
    {
        "case": "allreduce 1 MiB",
        "unit": "ms",
        "value": 3.0,
        "p95": 4.0,
        "reference": 6.0,
        "reference_p95": 9.0,
        "ratio": 0.5,
        "num_late": 0,
        "transport": "shared memory",
        "machine": {
            "cpu": "some CPU",
            "cores": 2,
            "torch": "2.15.0",
            "date": "2026-01-02",
            "commit": "abc1234",
        },
    }
]


def test_the_table_holds_the_figures_and_where_they_come_from():
    lines = measured(DEMO, ALLREDUCE).splitlines()
    assert "| time for the same number of steps | 20.0 s | 5.0 s | 0.25 |" in lines
    assert "| time to 95 % test accuracy | 5.0 s | not reached |  |" in lines
    assert "| contributions skipped, by rank | 0 0 0 0 | 0 0 0 9 |  |" in lines
    assert "| allreduce 1 MiB, median (p95) | 6 (9) ms | 3 (4) ms | 0.50 |" in lines
    assert lines[-1].endswith("torch 2.15.0; 2026-01-02, commit abc1234.")


def test_each_way_on_a_gpu_has_its_column():
    facts = ALLREDUCE[0]["machine"] | {"gpu": "a GPU"}
    of_all = ALLREDUCE[0] | {"machine": facts, "ranks": 4}
    staged = of_all | {"case": "allreduce 1 MiB on cuda"}
    shared = of_all | {
        "case": "allreduce 1 MiB by ipc on cuda",
        "value": 0.3,
        "ratio": 0.05,
    }
    lines = measured_on_gpu([staged, shared]).splitlines()
    assert lines[0].endswith("| Gloo | through the host | in the GPU's memory |")
    assert "| allreduce 1 MiB | 6 | 3 (0.50) | 0.3 (0.05) |" in lines
    assert lines[-1].startswith("4 ranks on one a GPU: some CPU, 2 cores")


def test_different_parameters_stand_out():
    demo = DEMO | {"skip": DEMO["skip"] | {"hashes_equal": False}}
    assert "| yes | **no** |" in measured(demo, ALLREDUCE)


def test_a_busy_machine_is_confessed():
    busy = [ALLREDUCE[0] | {"num_late": 3}]
    assert measured(DEMO, busy).endswith("busy with something else at times.")


def test_only_what_is_between_the_marks_is_replaced():
    text = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    once = put_between_marks(text, "new")
    assert once == f"before\n{BEGIN}\nnew\n{END}\nafter\n"
    assert put_between_marks(once, "new") == once


def test_a_text_without_marks_is_refused():
    with pytest.raises(ValueError, match="lacks the marks"):
        put_between_marks("text", "new")


def test_readme_and_documentation_have_the_same_figures():
    tables = [
        re.search(f"{BEGIN}.*?{END}", path.read_text(), re.DOTALL).group()
        for path in (README, PAGE)
    ]
    assert tables[0] == tables[1]


def test_every_result_file_has_a_row_in_the_readme_of_the_benchmarks():
    text = (BENCHMARKS / "README.md").read_text()
    rows = re.findall(r"^\| `([\w.-]+\.json)` \|", text, re.MULTILINE)
    assert sorted(rows) == sorted(p.name for p in (BENCHMARKS / "results").iterdir())
