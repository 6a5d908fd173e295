# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest

from aikido_torch.ordering import LinkCost, simulate
from aikido_torch.ordering._batches import windows
from aikido_torch.overlap._iteration import (
    Iteration,
    IterationWatch,
    graph_of,
    slowest,
    typical,
)


class Clock:
    now = 10.0

    def __call__(self):
        return self.now


def test_what_is_waited_is_no_computing():
    clock = Clock()
    watch = IterationWatch(clock)
    clock.now += 1
    watch.use("a")
    clock.now += 2
    watch.wait(lambda: setattr(clock, "now", clock.now + 5))
    watch.use("b")
    watch.use("a")  # only the first use counts
    clock.now += 1
    watch.ready("b")
    clock.now += 1
    seen = watch.step()
    assert seen == Iteration((("a", 1.0), ("b", 3.0)), (("b", 4.0),), 5.0, 10.0)
    clock.now += 2
    assert watch.step() == Iteration((), (), 2.0, 2.0)


@pytest.mark.parametrize(
    ("ended", "compute_s"), [(None, 0.0), (12.0, 3.0), (9.0, 5.0), (99.0, 0.0)]
)
def test_waiting_for_a_core_after_the_sum_has_ended_is_computing(ended, compute_s):
    clock = Clock()
    watch = IterationWatch(clock)

    def call():
        clock.now += 5  # from 10 to 15
        return ended

    watch.wait(call)
    assert watch.step().compute_s == compute_s


def test_a_wait_that_fails_is_none_either():
    clock = Clock()
    watch = IterationWatch(clock)

    def fail():
        clock.now += 3
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        watch.wait(fail)
    assert watch.step().compute_s == 0


def test_a_typical_iteration_has_medians():
    seen = [
        Iteration((("a", 1.0),), (("a", 4.0), ("b", 3.0)), 5.0, 9.0),
        Iteration((("a", 2.0),), (("a", 5.0),), 6.0, 7.0),
        Iteration((("a", 9.0),), (("a", 6.0), ("b", 7.0)), 9.0, 8.0),
    ]
    assert typical(seen) == Iteration((("a", 2.0),), (("a", 5.0), ("b", 5.0)), 6.0, 8.0)


# A forward of 3 s uses a, b and c at 0, 1 and 2 s. Their gradients are ready at 4, 6
# and 8 s, the last layer's first, and the step is at 9 s.
CHAIN = Iteration(
    uses=(("a", 0.0), ("b", 1.0), ("c", 2.0)),
    ready=(("c", 4.0), ("b", 6.0), ("a", 8.0)),
    compute_s=9.0,
    seconds=20.0,
)
SIZES = {"a": 100, "b": 200, "c": 300}


def test_the_graph_has_all_computing_and_the_windows_of_transfers():
    graph = graph_of(CHAIN, SIZES, LinkCost(alpha_s=0, beta_s=0))
    assert simulate(graph, list("abc")).makespan_s == pytest.approx(9.0)
    found = {w.transfer: (w.ready_s, w.first_use_s) for w in windows(graph)}
    # From the last use of one iteration, at 2 s, to that of the next iteration.
    assert found == {"c": (2.0, 9.0), "b": (4.0, 8.0), "a": (6.0, 7.0)}


def test_the_graph_takes_as_long_as_overlapping_iterations():
    link = LinkCost(alpha_s=0.0, beta_s=0.01)
    graph = graph_of(CHAIN, SIZES, link)
    # c: 2 to 4 and 8 to 9; b: 4 to 6; a: 6 to 7. No computation waits.
    done = simulate(graph, list("abc"), link="preemptive", compute="program")
    assert done.makespan_s == pytest.approx(9.0)
    # In the order of readiness a is last, but the forward begins with it.
    fifo = simulate(graph, link="fifo", compute="program")
    assert fifo.makespan_s == pytest.approx(10.0)


def test_what_was_not_used_or_had_no_gradient_has_no_transfer():
    seen = Iteration((("a", 0.0), ("b", 1.0)), (("a", 3.0), ("c", 4.0)), 5.0, 5.0)
    graph = graph_of(seen, SIZES, LinkCost(alpha_s=0, beta_s=0))
    assert graph.transfers == ["a"]


def test_marks_of_one_moment_share_a_piece():
    seen = Iteration((("a", 0.0), ("b", 0.0)), (("b", 2.0), ("a", 2.0)), 3.0, 3.0)
    graph = graph_of(seen, SIZES, LinkCost(alpha_s=0, beta_s=0))
    assert {w.ready_s for w in windows(graph)} == {2.0}
    assert {w.first_use_s for w in windows(graph)} == {3.0}


def test_the_slowest_rank_of_each_step_counts():
    def seen(compute_s):
        marks = (("a", 0.5 * compute_s), ("b", compute_s))
        return Iteration(marks[:1], marks[1:], compute_s, 9.0)

    # In usual steps the ranks take 3 s in turn; 1 and 20 are unusual.
    computing = [[3.0, 2.0, 3.0, 1.0, 20.0], [2.0, 3.0, 2.0, 1.0, 1.0]]
    found = slowest([seen(2.0), seen(1.0)], computing)
    assert found == Iteration((("a", 1.5),), (("b", 3.0),), 3.0, 9.0)
    assert slowest([seen(2.0), seen(1.0)], [[], []]) == seen(2.0)
