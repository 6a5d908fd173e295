# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import json

from aikido_torch.trace.analyze._verdict import Culprit, Verdict

ONE = Culprit(3, "compute", "backward", 0.03, 0.6, 5)
OTHER = Culprit(1, "network", "communication", 0.02, 0.4, 5, peer=2)


def test_a_verdict_is_unchanged_by_json():
    verdict = Verdict("compute", None, "steady", 0.03, 0, 4, "Text.", (ONE, OTHER), 0.1)
    assert Verdict.of_json(json.loads(json.dumps(verdict.to_json()))) == verdict


def test_the_ends_of_a_link_are_not_culprits():
    assert Verdict("compute", None, "steady", 0, 0, 4, "", (ONE, OTHER)).ranks == (3,)


def test_the_results_none_and_too_short_name_no_culprit():
    for cause in ("none", "too short"):
        assert not Verdict(cause, None, "none", 0.0, 0, 4, "").has_culprit
    assert Verdict("compute", 3, "steady", 0.03, 0, 4, "", (ONE,)).has_culprit
