# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest

from aikido_torch.elastic._restarts import RestartPolicy
from aikido_torch.elastic._supervisor import Progress, Supervisor
from aikido_torch.errors import AbortedError, ConfigError, TimedOutError


class Cluster:
    """Cluster with a number of places, whose members end when a test says so."""

    def __init__(self, num_places):
        self.num_places = num_places
        self.members = []  # (slot, role, progress, is_stopped)
        self.has_ended = False

    def start(self, slot, role):
        self.members.append([slot, role, None, False])
        return len(self.members) - 1

    def look(self, member):
        ahead = [m for m in self.members[:member] if not m[3]]
        if self.members[member][2] is not None:
            return self.members[member][2]
        return Progress("running" if len(ahead) < self.num_places else "pending")

    def stop(self, member):
        self.members[member][3] = True

    def end(self, member, state="done", **more):
        self.members[member][2] = Progress(state, **more)

    def is_over(self):
        return self.has_ended

    @property
    def num_active(self):
        return sum(not m[3] for m in self.members)


class Job:
    def __init__(self, num_places=8, scaling=(2, 4), num_reliable=2, **policy):
        self.now_s, self.lines = 0.0, []
        self.cluster = Cluster(num_places)
        self.supervisor = Supervisor(
            self.cluster,
            scaling,
            num_reliable=num_reliable,
            policy=RestartPolicy(**policy),
            timeout_s=60,
            tell=self.lines.append,
            clock=lambda: self.now_s,
        )

    def turn(self, seconds=0.0):
        self.now_s += seconds
        return self.supervisor.turn()


def test_reliable_members_start_first():
    job = Job()
    assert not job.turn()
    roles = [role for _, role, _, _ in job.cluster.members]
    assert roles == ["reliable", "reliable", "transient", "transient"]
    assert job.lines[0] == "member 0 (reliable) runs"


def test_a_dead_member_is_replaced_and_the_others_go_on():
    job = Job()
    job.turn()
    job.cluster.end(2, "dead", reason="its machine is gone")
    assert not job.turn()
    assert not job.turn(1.0)
    slots = [slot for slot, *_ in job.cluster.members]
    assert slots == [0, 1, 2, 3, 2]
    assert [m[3] for m in job.cluster.members] == [False, False, True, False, False]
    assert job.lines[-2:] == [
        "member 2 (transient) died (its machine is gone); a new one starts in 1 s",
        "member 2 (transient) runs",
    ]


def test_the_job_is_over_when_all_running_members_are_done():
    job = Job(num_places=3)
    job.turn()
    job.cluster.has_ended = True
    for member in range(3):
        job.cluster.end(member, result=f"result {member}")
        is_over = job.turn()
    assert is_over  # the member without a place is dropped
    assert job.supervisor.results == ["result 0", "result 1", "result 2"]
    assert job.cluster.num_active == 0


def test_a_member_that_leaves_is_replaced():
    job = Job(max_restarts=0)
    job.turn()
    job.cluster.end(3, result="left")
    assert not job.turn()
    assert job.lines[-1] == ("member 3 (transient) has left; a new one starts in 1 s")
    assert not job.turn(1.0)
    assert [slot for slot, *_ in job.cluster.members] == [0, 1, 2, 3, 3]


def test_a_result_that_comes_before_the_end_of_the_job_counts():
    job = Job(scaling=(2, 2))
    job.turn()
    job.cluster.end(1, result="early")
    assert not job.turn()
    job.cluster.has_ended = True
    job.cluster.end(0, result="late")
    assert job.turn()
    assert job.supervisor.results == ["late", "early"]
    assert len(job.cluster.members) == 2


def test_no_member_is_started_when_the_job_ends():
    job = Job()
    job.turn()
    job.cluster.end(3, "dead")
    job.turn()
    job.cluster.has_ended = True
    for member in range(3):
        job.cluster.end(member)
    assert job.turn(60.0)
    assert len(job.cluster.members) == 4


def test_too_few_places_are_an_error_after_the_limit():
    job = Job(num_places=1)
    job.turn()
    job.turn(60.0)
    with pytest.raises(TimedOutError, match="started 1 members within 60 s, and 2 are"):
        job.turn(0.1)


def test_a_job_that_has_begun_may_wait_for_places():
    job = Job(num_places=2)
    job.turn()
    job.cluster.num_places = 0
    assert not job.turn(1000.0)


def test_members_that_always_die_end_the_job():
    job = Job(scaling=(2, 2), max_restarts=0)
    job.turn()
    job.cluster.end(0, "dead", reason="ValueError: shape")
    with pytest.raises(
        AbortedError, match=r"1 members are left and 2 are needed.*shape"
    ):
        job.turn()
    job.supervisor.close()
    job.supervisor.close()
    assert job.cluster.num_active == 0


def test_a_job_goes_on_without_a_member_that_was_given_up():
    job = Job(max_restarts=0)
    job.turn()
    job.cluster.end(3, "dead", reason="x")
    assert not job.turn()
    assert job.lines[-1] == "member 3 (transient) died (x) and is given up"
    job.cluster.has_ended = True
    for member in range(3):
        job.cluster.end(member, result=member)
    assert job.turn()
    assert job.supervisor.results == [0, 1, 2]


@pytest.mark.parametrize(
    "scaling", [2, (2,), (0, 2), (3, 2), ("2", 8), (2, 8.0), (True, 2)]
)
def test_a_wrong_scaling_is_refused(scaling):
    with pytest.raises(ConfigError, match="lowest and the highest number of members"):
        Job(scaling=scaling)


@pytest.mark.parametrize("num_reliable", [0, 5])
def test_a_wrong_number_of_reliable_members_is_refused(num_reliable):
    with pytest.raises(ConfigError, match=f"there are {num_reliable} reliable members"):
        Job(num_reliable=num_reliable)
