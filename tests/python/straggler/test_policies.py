# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import dataclasses

import pytest

from aikido_torch.errors import ConfigError
from aikido_torch.straggler import ActiveBackup, Policy, SkipStraggler, WaitAll


def test_equal_policies_are_equal_for_the_engine():
    assert WaitAll() == WaitAll()
    assert SkipStraggler() == SkipStraggler()
    assert SkipStraggler(slack=2) != SkipStraggler()
    assert SkipStraggler().native() == SkipStraggler().native()
    assert SkipStraggler(floor_ms=1).native() != SkipStraggler().native()
    assert WaitAll().native() != SkipStraggler().native()
    assert (WaitAll().native() == "WaitAll()") is False
    assert WaitAll(rebalance=True) != WaitAll()
    assert WaitAll(rebalance=True).native() != WaitAll().native()
    bucket = SkipStraggler(granularity="bucket")
    assert bucket.native() != SkipStraggler().native()
    assert bucket.native() == SkipStraggler(granularity="bucket").native()
    leaving = SkipStraggler(on_log_full="exclude")
    assert leaving.native() != SkipStraggler().native()
    assert repr(leaving.native()).endswith(
        'granularity="shard", on_log_full="exclude")'
    )
    with pytest.raises(dataclasses.FrozenInstanceError):
        SkipStraggler().slack = 3


def test_the_engine_prints_policies_as_python_does():
    assert repr(WaitAll().native()) == "WaitAll()"
    assert repr(WaitAll(rebalance=True).native()) == "WaitAll(rebalance=True)"
    assert repr(WaitAll(rebalance=True)) == "WaitAll(rebalance=True)"
    assert repr(SkipStraggler(min_contributors=3, ceiling_ms=1500.5).native()) == (
        "SkipStraggler(min_contributors=3, floor_ms=20, ceiling_ms=1500.5, "
        "max_consecutive_skips=100, warmup_operations=3, slack=1.5, worth=1, "
        'divisor="contributors", granularity="shard")'
    )
    assert repr(SkipStraggler().native()).startswith(
        "SkipStraggler(min_contributors=None, floor_ms=20, ceiling_ms=10000, "
    )
    # A floor above the default ceiling raises the ceiling.
    assert "floor_ms=20000, ceiling_ms=20000," in repr(
        SkipStraggler(floor_ms=20_000).native()
    )
    assert 'granularity="bucket")' in repr(SkipStraggler(granularity="bucket").native())
    assert repr(SkipStraggler(min_contributors=2, divisor="world")) == (
        "SkipStraggler(min_contributors=2, floor_ms=20.0, ceiling_ms=None, "
        "max_consecutive_skips=100, warmup_operations=3, slack=1.5, worth=1.0, "
        "divisor='world', granularity='shard', on_log_full='wait')"
    )


@pytest.mark.parametrize("policy", [SkipStraggler, ActiveBackup])
@pytest.mark.parametrize(
    ("old", "new"),
    [({"masks": "bucket"}, "granularity"), ({"log_full": "leave"}, "on_log_full")],
)
def test_old_names_of_options_go_on_with_a_warning(policy, old, new):
    ((name, value),) = old.items()
    text = f"{policy.__name__}: {name} is {new} now"
    with pytest.warns(DeprecationWarning, match=text):
        renamed = policy(**old)
    assert renamed != policy()
    assert renamed.native() != policy().native()
    with pytest.warns(DeprecationWarning, match=text):
        assert getattr(renamed, name) == value
    with pytest.warns(DeprecationWarning, match=text):
        assert dataclasses.replace(policy(), **old) == renamed


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"min_contributors": 0}, "min_contributors is 0 but must be at least 1, or N"),
        ({"min_contributors": -5}, "min_contributors is -5 but must be at least 1, or"),
        ({"floor_ms": -1}, "floor_ms is -1 ms but must be between 0 ms and 3"),
        ({"floor_ms": 5e6}, "floor_ms is 5"),
        ({"floor_ms": float("inf")}, "floor_ms is inf but must be between 0 ms and 3"),
        ({"ceiling_ms": float("inf")}, "ceiling_ms is inf but must be between 0 ms a"),
        ({"ceiling_ms": -float("inf")}, "ceiling_ms is -inf but must be between 0 ms"),
        ({"ceiling_ms": -1e300}, "ceiling_ms is -1e+300 but must be between 0 ms and"),
        (
            {"floor_ms": 50, "ceiling_ms": 40},
            "ceiling_ms is 40 ms but must be between the floor_ms of 50 ms and 3",
        ),
        ({"max_consecutive_skips": 0}, "max_consecutive_skips is 0 but must be betwee"),
        ({"max_consecutive_skips": -1}, "max_consecutive_skips is -1; it must not be"),
        ({"warmup_operations": 65}, "warmup_operations is 65 but must be between 1 an"),
        ({"on_log_full": "go"}, 'on_log_full is "go"; it takes "wait" or "exclude"'),
        ({"slack": 0.5}, "slack is 0.5 but must be between 1 and 100."),
        ({"slack": float("nan")}, "slack is nan but must be between 1 and 100."),
        ({"divisor": "all"}, 'divisor is "all"; it takes "contributors" or "world"'),
        (
            {"granularity": "rank"},
            'granularity is "rank"; it takes "shard" or "bucket"',
        ),
    ],
)
def test_a_value_out_of_range_is_refused_where_it_is_used(options, text):
    policy = SkipStraggler(**options)
    with pytest.raises(ConfigError) as caught:
        policy.native()
    assert str(caught.value).startswith(f"SkipStraggler: {text}")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"min_contributors": True}, "min_contributors is True; it takes a whole num"),
        ({"min_contributors": 1 << 31}, "min_contributors is 2147483648; it takes on"),
        ({"max_consecutive_skips": True}, "max_consecutive_skips is True; it takes a"),
        ({"warmup_operations": None}, "warmup_operations is None; it takes a whole n"),
        ({"warmup_operations": False}, "warmup_operations is False; it takes a whole"),
        ({"floor_ms": None}, "floor_ms is None; it takes a number."),
        ({"floor_ms": float("nan")}, "floor_ms is nan; it takes a number."),
        ({"ceiling_ms": float("nan")}, "ceiling_ms is nan; it takes a number."),
        ({"slack": True}, "slack is True; it takes a number."),
        ({"floor_ms": 10**400}, "floor_ms is 1000"),
        ({"granularity": None}, "granularity is None; it takes a name."),
        ({"divisor": 1}, "divisor is 1; it takes a name."),
        ({"on_log_full": 1}, "on_log_full is 1; it takes a name."),
        ({"rebalance": True}, 'there is no option "rebalance"; there are min_contri'),
    ],
)
def test_a_value_of_a_wrong_type_is_refused_at_once(options, text):
    with pytest.raises(ConfigError) as caught:
        SkipStraggler(**options)
    assert str(caught.value).startswith(f"SkipStraggler: {text}")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"backups": 1.5}, "backups is 1.5; it takes a whole number."),
        ({"mode": 2}, "mode is 2; it takes a name."),
        ({"verify_shadows": 1}, "verify_shadows is 1; it takes True or False."),
        ({"slack": "2"}, "slack is '2'; it takes a number."),
    ],
)
def test_wrong_options_of_backups_are_refused_too(options, text):
    with pytest.raises(ConfigError) as caught:
        ActiveBackup(**options)
    assert str(caught.value) == f"ActiveBackup: {text}"


def test_a_policy_can_fit_one_group_and_not_another():
    native = SkipStraggler(min_contributors=4).native()
    native.check(4)
    with pytest.raises(ConfigError, match="is 4 but must be between 1 and the world s"):
        native.check(3)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"rebalance": "yes"}, "rebalance is 'yes'; it takes True or False."),
        ({"rebalance": 1}, "rebalance is 1; it takes True or False."),
        ({"rebalanced": True}, 'there is no option "rebalanced"; did you mean "rebala'),
        (
            {"granularity": "bucket"},
            'there is no option "granularity"; there are rebalance',
        ),
    ],
)
def test_wait_all_refuses_options_of_other_policies(options, text):
    with pytest.raises(ConfigError) as caught:
        WaitAll(**options)
    assert str(caught.value).startswith(f"WaitAll: {text}")


def test_a_mistyped_option_is_refused_with_the_nearest_name():
    with pytest.raises(ConfigError) as caught:
        SkipStraggler(ceilling_ms=100)
    assert str(caught.value) == (
        'SkipStraggler: there is no option "ceilling_ms"; did you mean "ceiling_ms"?'
    )


def test_a_policy_must_have_a_native_form():
    class Mine(Policy):
        pass

    with pytest.raises(ConfigError, match=r"^Mine has no native\(\) and so says"):
        Mine().native()
