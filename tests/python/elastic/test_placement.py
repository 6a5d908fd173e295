# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aikido_torch.elastic._placement import Placement, Transfer, place, transfers
from aikido_torch.elastic._stages import RELIABLE, TRANSIENT, Stage
from aikido_torch.errors import ConfigError

ROLES = {"r0": RELIABLE, "r1": RELIABLE, "t0": TRANSIENT, "t1": TRANSIENT}
stages = st.sampled_from(list(Stage))


def roles_of(num_reliable, transient):
    reliable = {f"r{i}": RELIABLE for i in range(num_reliable)}
    return reliable | {f"t{i}": TRANSIENT for i in sorted(transient)}


def spread(members, possible):
    counts = Counter(members)
    numbers = [counts[m] for m in possible]
    return max(numbers) - min(numbers)


def test_reliable_members_own_all_shards_in_stage_1():
    placement = place(Stage(1), ROLES, 4)
    assert placement == Placement(("r0", "r0", "r1", "r1"))
    assert placement.owned_by("r1") == (2, 3)
    assert placement.copied_by("r1") == ()


def test_transient_members_own_and_reliable_members_copy_in_stages_2_and_3():
    for stage in (Stage(2), Stage(3)):
        placement = place(stage, ROLES, 4)
        assert placement.owners == ("t0", "t0", "t1", "t1")
        assert placement.copies == ("r0", "r0", "r1", "r1")


def test_the_copies_of_stage_2_stay_where_stage_1_had_the_shards():
    first = Placement(("r1", "r0", "r1", "r0"))
    second = place(Stage(2), ROLES, 4, previous=first)
    assert second.copies == first.owners
    moves = transfers(second, first, list(ROLES))
    assert moves[0] == Transfer(0, "r1", "t0")
    assert {m.target for m in moves} == {"t0", "t1"}


def test_no_state_moves_if_a_copy_becomes_the_shard():
    second = Placement(("t0", "t0", "t1", "t1"), copies=("r1", "r0", "r1", "r0"))
    first = place(Stage(1), roles_of(2, []), 4, previous=second)
    assert first.owners == second.copies
    assert transfers(first, second, ["r0", "r1"]) == ()


def test_an_owner_keeps_the_shard_that_does_not_divide_evenly():
    before = Placement(("t1", "t0", "t1"), copies=("r1", "r0", "r1"))
    assert place(Stage(2), ROLES, 3, previous=before) == before


def test_a_lost_owner_is_replaced_from_the_copy():
    second = place(Stage(2), ROLES, 4)
    roles = {m: role for m, role in ROLES.items() if m != "t1"}
    third = place(Stage(2), roles, 4, previous=second)
    assert third.owners == ("t0",) * 4
    assert transfers(third, second, list(roles)) == (
        Transfer(2, "r1", "t0"),
        Transfer(3, "r1", "t0"),
    )


def test_a_shard_without_a_living_holder_has_no_source():
    second = place(Stage(2), ROLES, 2)
    roles = {"r0": RELIABLE, "t0": TRANSIENT}
    found = transfers(place(Stage(2), roles, 2, previous=second), second, list(roles))
    assert found == (Transfer(1, None, "t0"), Transfer(1, None, "r0"))


def test_members_with_a_notice_get_no_shard():
    placement = place(Stage(2), ROLES, 4, leaving=["t0"])
    assert placement.owners == ("t1",) * 4
    all_leave = place(Stage(2), ROLES, 4, leaving=["t0", "t1"])
    assert set(all_leave.owners) == {"t0", "t1"}


@given(
    stages,
    st.integers(1, 4),
    st.integers(1, 40),
    st.lists(st.sets(st.integers(0, 12)), min_size=1, max_size=6),
)
def test_placements_stay_balanced_through_any_churn(
    stage, num_reliable, num_shards, memberships
):
    placement = None
    for transient in memberships:
        roles = roles_of(num_reliable, transient)
        placement = place(stage, roles, num_shards, previous=placement)
        reliable = [m for m, role in roles.items() if role == RELIABLE]
        others = [m for m in roles if m not in reliable]
        has_copies = stage != 1 and bool(others)
        assert spread(placement.owners, others if has_copies else reliable) <= 1
        assert len(placement.copies) == (num_shards if has_copies else 0)
        if has_copies:
            assert spread(placement.copies, reliable) <= 1
        assert place(stage, roles, num_shards, previous=placement) == placement


@given(st.integers(1, 60), st.integers(2, 12))
def test_a_leaving_member_moves_only_its_own_shards(num_shards, num_transient):
    roles = roles_of(1, range(num_transient))
    before = place(Stage(2), roles, num_shards)
    del roles["t0"]
    after = place(Stage(2), roles, num_shards, previous=before)
    moved = [s for s in range(num_shards) if before.owners[s] != after.owners[s]]
    assert moved == list(before.owned_by("t0"))


def test_wrong_numbers_are_refused():
    with pytest.raises(ConfigError, match="there are 0 shards"):
        place(Stage(1), ROLES, 0)
    with pytest.raises(ConfigError, match="no reliable member"):
        place(Stage(2), roles_of(0, [1]), 4)
    with pytest.raises(ConfigError, match="in force has 4 shards, and the new one has"):
        place(Stage(1), ROLES, 5, previous=place(Stage(1), ROLES, 4))
