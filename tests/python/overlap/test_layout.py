# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest

from aikido_torch.ordering import LinkCost
from aikido_torch.overlap._iteration import Iteration
from aikido_torch.overlap._layout import Layout, by_module, plain, planned, predict

NAMES = ("in.weight", "in.bias", "mid.weight", "out.weight", "out.bias")
ALIKE = dict.fromkeys(NAMES, "float32")
READY = list(reversed(NAMES))
# Forward of 1 s for each layer, backward of 2 s.
SEEN = Iteration(
    uses=tuple(zip(NAMES, (0.0, 0.0, 1.0, 2.0, 2.0), strict=True)),
    ready=tuple(zip(READY, (5.0, 5.0, 7.0, 9.0, 9.0), strict=True)),
    compute_s=9.0,
    seconds=9.0,
)
SIZES = dict(zip(NAMES, (100, 1, 100, 100, 1), strict=True))


def test_modules_have_a_bucket_each_and_who_is_needed_first_goes_first():
    layout = by_module(READY, NAMES, ALIKE)
    assert layout.buckets == (
        ("out.bias", "out.weight"),
        ("mid.weight",),
        ("in.bias", "in.weight"),
    )
    assert layout.places == (2, 1, 0)
    assert layout.predicted_s is None


def test_what_is_not_alike_never_shares_a_bucket():
    kinds = ALIKE | {"in.bias": "float64"}
    assert ("in.bias",) in by_module(READY, NAMES, kinds).buckets
    layout = planned(SEEN, SIZES, LinkCost(alpha_s=5.0, beta_s=0.0), kinds)
    assert ("in.bias",) in layout.buckets


def test_a_link_that_is_dear_to_start_has_fewer_buckets():
    dear = planned(SEEN, SIZES, LinkCost(alpha_s=3.0, beta_s=0.0), ALIKE)
    cheap = planned(SEEN, SIZES, LinkCost(alpha_s=0.0, beta_s=0.02), ALIKE)
    assert len(dear.buckets) < len(cheap.buckets)
    # 2 s for each of three transfers; computation waits only for the first layer's.
    assert cheap.predicted_s == pytest.approx(11.0, abs=0.05)
    assert cheap.predicted_s == min(cheap.candidates.values())


def test_buckets_are_sent_as_they_are_ready_and_cover_all():
    for beta_s in (0.0, 0.01, 0.05):
        for alpha_s in (0.0, 0.1, 1.0, 10.0):
            link = LinkCost(alpha_s=alpha_s, beta_s=beta_s)
            layout = planned(SEEN, SIZES, link, ALIKE)
            names = [name for bucket in layout.buckets for name in bucket]
            assert sorted(names) == sorted(NAMES)
            assert sorted(layout.places) == list(range(len(layout.buckets)))
            at = dict(SEEN.ready)
            ready = [max(at[name] for name in bucket) for bucket in layout.buckets]
            assert ready == sorted(ready)


def test_what_the_iteration_did_not_use_goes_last():
    sizes = SIZES | {"aside.weight": 10}
    kinds = ALIKE | {"aside.weight": "float32"}
    layout = planned(SEEN, sizes, LinkCost(alpha_s=0.0, beta_s=0.01), kinds)
    assert layout.buckets[-1] == ("aside.weight",)
    assert layout.places[-1] == len(layout.buckets) - 1


def test_what_is_too_small_for_a_bucket_goes_with_what_is_ready_next():
    # In 1 ms the link carries 150 bytes.
    link = LinkCost(alpha_s=0.0, beta_s=1e-3 / 150)
    layout = planned(SEEN, SIZES, link, ALIKE)
    assert ("out.bias", "out.weight", "mid.weight") in map(tuple, layout.buckets)


def test_large_models_are_planned_in_coarse_pieces():
    names = [f"layer{i}.weight" for i in range(2000)]
    seen = Iteration(
        uses=tuple((name, float(i)) for i, name in enumerate(names)),
        ready=tuple((n, 2000.0 + i) for i, n in enumerate(reversed(names))),
        compute_s=4000.0,
        seconds=4000.0,
    )
    sizes = dict.fromkeys(names, 10)
    kinds = dict.fromkeys(names, "float32")
    layout = planned(seen, sizes, LinkCost(alpha_s=0.0, beta_s=1.0), kinds)
    assert len(layout.buckets) <= 256
    assert sum(map(len, layout.buckets)) == 2000


def test_plain_buckets_are_those_of_distributed_data_parallel():
    sizes = dict(zip(NAMES, (30 << 20, 8, 700_000, 600_000, 8), strict=True))
    layout = plain(READY, sizes, ALIKE)
    assert layout.buckets == (
        ("out.bias", "out.weight", "mid.weight"),
        ("in.bias", "in.weight"),
    )
    assert layout.places == (0, 1)
    kinds = ALIKE | {"out.weight": "float64"}
    assert len(plain(READY, SIZES, kinds).buckets) == 3


@pytest.mark.parametrize("alpha_s", [0.0, 0.5, 3.0])
def test_the_prediction_of_a_plan_is_that_of_its_simulation(alpha_s):
    link = LinkCost(alpha_s=alpha_s, beta_s=0.02)
    layout = planned(SEEN, SIZES, link, ALIKE)
    assert predict(layout, SEEN, SIZES, link) == pytest.approx(layout.predicted_s)
    slow = LinkCost(alpha_s=alpha_s, beta_s=0.2)
    assert predict(layout, SEEN, SIZES, slow) > 2 * layout.predicted_s


def test_the_prediction_leaves_out_what_was_not_seen():
    link = LinkCost(alpha_s=0.0, beta_s=0.02)
    names = tuple(SIZES)
    sizes = SIZES | {"unused": 1000}
    layout = Layout((names, ("unused",)), (0, 1))
    without = Layout((names,), (0,))
    found = predict(layout, SEEN, sizes, link)
    assert found == predict(without, SEEN, SIZES, link)
