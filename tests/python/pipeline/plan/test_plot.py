# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest

from aikido_torch import pipeline


def test_a_picture_has_a_box_for_each_instruction_with_a_duration(tmp_path):
    pytest.importorskip("matplotlib")
    made = pipeline.schedule("zero_bubble", stages=3, micro_batches=5)
    path = tmp_path / "zero_bubble.svg"
    made.plot(path)
    svg = path.read_text()
    for name in ("rank 0", "rank 2", "weight gradient", "zero_bubble: 3 stages"):
        assert f"<!-- {name}" in svg
    assert "<!-- rank 3" not in svg
    assert "<!-- step" not in svg
    # On three ranks each micro-batch is written into its F, I and W boxes.
    assert svg.count("<!-- 4 -->") >= 9
    made.plot(tmp_path / "a.png", made.simulate(step=1))
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
