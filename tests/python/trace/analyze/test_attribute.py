# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
from itertools import cycle, islice

import numpy as np
import pytest

from aikido_torch.errors import ConfigError
from aikido_torch.trace.analyze._attribute import (
    attribute,
    attribute_joined,
    attribute_windows,
)
from aikido_torch.trace.analyze._step_facts import (
    LinkStep,
    RankStep,
    StepFacts,
    facts_of,
)
from benchmarks.tracing_cases.simulate import CAUSES, Injected, Model


def step(number, works, *, inputs=None, stops=None, links=None, length=0.1):
    ranks = {
        rank: RankStep(
            work_s=work,
            input_s=(inputs or {}).get(rank, 0.0),
            stopped_s=(stops or {}).get(rank, 0.0),
            stopped_in_work_s=(stops or {}).get(rank, 0.0),
            length_s=length,
        )
        for rank, work in enumerate(works)
    }
    return StepFacts(number, ranks, links or {})


def window(**changes):
    return [step(i, [0.05, 0.05, 0.05, 0.05], **changes) for i in range(5)]


# (facts of steps 0 to 4, cause, rank, pattern, beginning of the evidence)
SLOW_LINK = {
    (s, t): LinkStep(1 << 20, 0.05 if s == 2 else 0.005)
    for s in range(4)
    for t in range(4)
    if s != t
}
FULL_LINK = {pair[::-1]: link for pair, link in SLOW_LINK.items()}
TABLE = [
    (window(), "none", None, "none", "No rank cost the others"),
    (
        [step(i, [0.05, 0.05, 0.09, 0.05]) for i in range(5)],
        "compute", 2, "steady",
        "Rank 2 worked 90 ms on its own in 5 of 5 steps, the others 50 ms",
    ),
    (
        [step(i, [0.05, 0.09, 0.05, 0.05], inputs={1: 0.039}) for i in range(5)],
        "input", 1, "steady",
        "Rank 1 waited 39 ms for its data in 5 of 5 steps, the others 0 ms",
    ),
    (
        [step(i, [0.05, 0.09, 0.05, 0.05], inputs=dict.fromkeys(range(4), 0.04))
         for i in range(5)],
        "compute", 1, "steady", "Rank 1 worked 90 ms",
    ),
    (
        [*window()[:4], step(4, [0.05, 0.05, 0.05, 0.85], stops={3: 0.8})],
        "host stopped", 3, "transient",
        "Nothing of rank 3 ran for 800 ms in 1 of 5 steps",
    ),
    (
        window(links=SLOW_LINK), "network out", 2, "steady",
        "What rank 2 sends took 50 ms per MiB in 5 of 5 steps",
    ),
    (
        window(links=FULL_LINK), "network in", 2, "steady",
        "What rank 2 receives took 50 ms per MiB in 5 of 5 steps",
    ),
    (
        [*window()[:4], step(4, [0.05, 0.35, 0.05, 0.05])],
        "compute", 1, "transient", "Rank 1 worked 350 ms on its own in 1 of 5 steps",
    ),
    (
        [step(i, [0.35 if r == i % 4 else 0.05 for r in range(4)]) for i in range(5)],
        "compute", None, "rotating",
        "In 5 of 5 steps another one of the ranks 0, 1, 2, 3 was 300 ms behind",
    ),
    # A small delay, once or in turn, without noise.
    (
        [*window()[:4], step(4, [0.05, 0.08, 0.05, 0.05])],
        "compute", 1, "transient", "Rank 1 worked 80 ms on its own in 1 of 5 steps",
    ),
    (
        [step(i, [0.08 if r == i % 4 else 0.05 for r in range(4)]) for i in range(5)],
        "compute", None, "rotating", "In 5 of 5 steps another one of the ranks 0, 1,",
    ),
    # All ranks are slow, so no rank is slower than the others.
    ([step(i, [0.5] * 4) for i in range(5)], "none", None, "none", "No"),
]  # fmt: skip


@pytest.mark.parametrize(("seen", "cause", "rank", "pattern", "text"), TABLE)
def test_facts_give_a_verdict_and_its_evidence(seen, cause, rank, pattern, text):
    verdict = attribute(seen)
    assert (verdict.cause, verdict.rank, verdict.pattern) == (cause, rank, pattern)
    assert verdict.evidence.startswith(text)
    assert (verdict.first_step, verdict.last_step) == (0, 4)
    assert attribute(seen) == verdict


def of_links(num_ranks, links):
    """Five steps; `links` maps a pair of ranks to the ms that its link took."""
    made = {pair: LinkStep(1 << 20, ms / 1e3) for pair, ms in links.items()}
    return [step(i, [0.05] * num_ranks, links=made) for i in range(5)]


@pytest.mark.parametrize("slow", [(0, 1), (1, 0)])
def test_with_two_ranks_a_slow_link_blames_no_rank(slow):
    verdict = attribute(of_links(2, {slow[::-1]: 5, slow: 50}))
    assert (verdict.cause, verdict.rank, verdict.pattern) == ("network", None, "steady")
    assert verdict.lost_s == pytest.approx(0.045)
    assert verdict.evidence == (
        f"What rank {slow[0]} sends to rank {slow[1]} took 50 ms per MiB in 5 of 5 "
        "steps, what goes other ways 5 ms per MiB: the link between both is slow, and "
        "nobody can tell at which end."
    )
    assert attribute(of_links(2, {slow[::-1]: 5, slow: 6})).cause == "none"


def test_with_two_ranks_noisy_links_blame_no_rank():
    seen = []
    for i, ms in enumerate([(5, 25), (30, 8), (6, 20), (18, 9), (7, 7)]):
        links = {(0, 1): LinkStep(1 << 20, ms[0] / 1e3)}
        links |= {(1, 0): LinkStep(1 << 20, ms[1] / 1e3)}
        seen.append(step(i, [0.05, 0.05], links=links))
    assert attribute(seen).cause == "none"


def test_in_a_ring_a_slow_link_between_two_ranks_blames_no_rank():
    ring = {(r, (r + 1) % 4): 5 for r in range(4)}
    verdict = attribute(of_links(4, ring | {(2, 3): 50}))
    assert (verdict.cause, verdict.rank) == ("network", None)
    assert verdict.evidence.startswith("What rank 2 sends to rank 3 took 50 ms")


def test_a_noisy_machine_is_not_a_culprit():
    works = [0.05, 0.09, 0.03, 0.06, 0.11, 0.04, 0.08, 0.05]
    many = cycle(works)
    seen = [step(i, list(islice(many, 3))) for i in range(5)]
    verdict = attribute(seen)
    assert (verdict.cause, verdict.culprits) == ("too short", ())
    assert verdict.evidence.startswith("5 steps are too few for the noise")


def test_a_stopped_rank_is_not_blamed_for_its_links():
    links = {pair: LinkStep(1 << 20, 0.9) for pair in SLOW_LINK if 2 in pair}
    links = SLOW_LINK | links
    seen = [step(i, [0.05] * 4, stops={2: 0.3}, links=links) for i in range(5)]
    assert (attribute(seen).cause, attribute(seen).rank) == ("host stopped", 2)


def test_a_missing_rank_does_not_hide_the_culprit():
    seen = [step(i, [0.05, 0.05, 0.05, 0.09]) for i in range(5)]
    for facts in seen:
        del facts.ranks[1]
    assert (attribute(seen).cause, attribute(seen).rank) == ("compute", 3)


def test_slow_acknowledgements_on_links_do_not_split_the_blame():
    def links(out_s, in_s):
        return {
            (s, t): LinkStep(1 << 20, out_s if s == 2 else in_s if t == 2 else 0.005)
            for s, t in SLOW_LINK
        }

    for changes in ([(0.09, 0.04), (0.05, 0.06)] * 3, [(0.05, 0.06), (0.09, 0.04)] * 3):
        seen = [
            step(i, [0.05] * 4, links=links(*each)) for i, each in enumerate(changes)
        ]
        assert (attribute(seen[:5]).cause, attribute(seen[:5]).rank) == (
            "network out",
            2,
        )
        assert attribute(seen[:5]).pattern == "steady"


def test_windows_follow_each_other():
    seen = [step(i, [0.05] * 4) for i in range(12)]
    windows = attribute_windows(seen, size=5)
    assert [(w.first_step, w.last_step) for w in windows] == [(0, 4), (5, 9), (10, 11)]


def test_injected_delays_in_simulated_steps_are_found():
    seen, right_rank, right_cause = 0, 0, 0
    for cause in CAUSES:
        for rank in range(4):
            for seed in range(5):
                injected = Injected(cause, rank) if cause != "none" else None
                steps = [None] * 6 + [injected] * 5
                facts = facts_of(Model().run(steps, seed=seed))
                verdict = attribute(facts[-5:])
                seen += 1
                wanted = None if cause == "none" else rank
                right_rank += verdict.rank == wanted
                said = verdict.cause if verdict.has_culprit else "none"
                right_cause += said == cause
    assert right_rank >= 0.99 * seen
    assert right_cause >= 0.95 * seen


def test_healthy_steps_give_no_alarm():
    facts = facts_of(Model().run([None] * 2001, seed=1))
    assert len(facts) == 2000
    assert [v for v in attribute_windows(facts) if v.has_culprit] == []
    assert {v.cause for v in attribute_joined(facts[:200])[:-1]} == {"none"}


# ---- common jobs: two ranks, half of the ranks slow, another slow rank in each step


def of_works(works):
    return [
        StepFacts(
            i, {r: RankStep(length_s=max(w) + 0.002, work_s=x) for r, x in enumerate(w)}
        )
        for i, w in enumerate(works)
    ]


def test_with_two_ranks_the_slow_one_is_named():
    verdict = attribute(of_works([[0.015, 0.045]] * 5))
    assert (verdict.cause, verdict.rank, verdict.pattern) == ("compute", 1, "steady")
    assert verdict.lost_s == pytest.approx(0.03)


def test_half_of_the_ranks_are_named_with_their_shares():
    verdict = attribute(of_works([[0.015] * 4 + [0.045] * 3 + [0.075]] * 5))
    assert (verdict.cause, verdict.rank, verdict.pattern) == ("compute", None, "steady")
    assert verdict.ranks == (4, 5, 6, 7)
    assert [c.rank for c in verdict.culprits] == [7, 4, 5, 6]
    assert [c.share for c in verdict.culprits] == pytest.approx([0.4, 0.2, 0.2, 0.2])


@pytest.mark.parametrize("size", [2, 3, 5, 7, 16])
def test_up_to_half_of_the_ranks_are_named_despite_noise(size):
    rng = np.random.default_rng(size)
    for culprits in {1, size // 2}:
        late = set(rng.permutation(size)[:culprits].tolist())
        works = 0.1 * (1 + 0.05 * rng.standard_normal((10, size)))
        works[:, sorted(late)] += 0.04
        verdict = attribute(of_works(works.tolist()))
        assert (set(verdict.ranks), verdict.cause) == (late, "compute")


@pytest.mark.parametrize("size", [2, 3, 4, 5, 8])
def test_ranks_that_are_late_in_turn_give_the_pattern_rotating(size):
    works = [[0.315 if r == i % size else 0.015 for r in range(size)] for i in range(5)]
    verdict = attribute(of_works(works))
    assert (verdict.pattern, verdict.rank) == ("rotating", None)
    assert verdict.lost_s == pytest.approx(0.3)


def test_one_step_of_two_ranks_is_too_short():
    verdict = attribute(of_works([[0.015, 0.045]]))
    assert (verdict.cause, verdict.rank) == ("too short", None)


def test_the_part_of_the_step_with_the_largest_excess_is_the_cause():
    for part, cause in (
        ("forward", "compute"),
        ("optimizer", "compute"),
        ("input", "input"),
        ("loop", "loop"),
    ):
        parts = {"input": 0.002, "forward": 0.01, "backward": 0.03, "loop": 0.001}
        late = parts | {part: parts.get(part, 0.004) + 0.03}
        seen = [
            StepFacts(
                i,
                {
                    r: RankStep(
                        work_s=sum(own.values()),
                        input_s=own["input"],
                        length_s=0.1,
                        parts=own,
                    )
                    for r, own in enumerate([parts, late, parts, late])
                },
            )
            for i in range(5)
        ]
        verdict = attribute(seen)
        assert (verdict.cause, verdict.ranks) == (cause, (1, 3))
        assert {culprit.part for culprit in verdict.culprits} == {part}


def test_two_causes_at_once_are_both_named():
    seen = [step(i, [0.05, 0.13, 0.05, 0.05], links=SLOW_LINK) for i in range(5)]
    verdict = attribute(seen)
    assert [(c.rank, c.cause) for c in verdict.culprits] == [
        (1, "compute"),
        (2, "network out"),
    ]
    assert (verdict.cause, verdict.rank) == ("compute", None)
    assert sum(c.share for c in verdict.culprits) == pytest.approx(1)


def test_half_of_the_links_can_be_slow():
    links = {
        (s, t): LinkStep(1 << 20, 0.05 if s in (1, 2) else 0.005)
        for s in range(4)
        for t in range(4)
        if s != t
    }
    verdict = attribute(window(links=links))
    assert (verdict.cause, verdict.ranks) == ("network out", (1, 2))


def test_two_hosts_that_stop_in_turn_are_both_named():
    seen = [step(i, [0.05] * 4, stops={i % 2: 0.3}) for i in range(6)]
    verdict = attribute(seen)
    assert (verdict.cause, verdict.pattern) == ("host stopped", "rotating")
    assert verdict.ranks == (0, 1)


def test_a_host_that_stops_in_each_step_is_named_beside_one_that_stopped_once():
    stops = [{0: 0.1 if i == 3 else 0.0, 1: 0.2} for i in range(8)]
    seen = [
        step(i, [0.05 + each[r] for r in range(2)], stops=each)
        for i, each in enumerate(stops)
    ]
    verdict = attribute(seen)
    assert (verdict.cause, verdict.rank) == ("host stopped", 1)
    assert verdict.pattern == "steady"


def test_windows_that_are_too_short_are_joined():
    rng = np.random.default_rng(0)
    works = 0.05 + 0.006 * rng.standard_normal((40, 4))
    assert attribute(of_works(works.tolist())[:5]).cause == "too short"
    verdicts = attribute_joined(of_works(works.tolist()))
    assert verdicts[0].cause == "none"
    assert verdicts[0].last_step > 4
    assert verdicts[-1].last_step == 39


def test_a_stop_of_all_ranks_at_once_delays_no_rank():
    steps = [step(i, [0.05, 0.05]) for i in range(5)]
    steps[2] = step(2, [0.25, 0.26], stops={0: 0.2, 1: 0.21})
    assert not attribute(steps).has_culprit
    steps[3] = step(3, [0.05, 0.25], stops={1: 0.2})
    assert (attribute(steps).cause, attribute(steps).rank) == ("host stopped", 1)


def test_work_hidden_by_a_stop_makes_no_other_rank_slow():
    """Too much was subtracted from the work of ranks 0 and 1."""
    stopped = RankStep(
        work_s=0.2, stopped_s=0.2, stopped_in_work_s=0.2, unsure_s=0.04, length_s=0.25
    )
    well = RankStep(work_s=0.03, length_s=0.25)
    ranks = {0: stopped, 1: stopped, 2: well, 3: well}
    verdict = attribute([StepFacts(i, ranks) for i in range(8)])
    assert (verdict.cause, verdict.ranks) == ("host stopped", (0, 1))


def test_a_stop_of_all_ranks_does_not_hide_the_late_ranks():
    steps = []
    for i in range(18):
        works = [0.02 + 0.04 * (i % 2 == r) for r in (0, 1)]
        steps.append(step(i, works, length=0.061))
    stalled = {
        r: RankStep(0.12 + 0.04 * r, 0, 0.14, 0.12, 0.04, length_s=0.2) for r in (0, 1)
    }
    steps[4] = StepFacts(4, stalled)
    assert attribute(steps).pattern == "rotating"


def test_an_empty_window_is_refused():
    with pytest.raises(ConfigError, match="at least one step"):
        attribute([])
