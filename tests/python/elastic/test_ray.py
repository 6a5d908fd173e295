# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Arguments of `launch`, and its use of Ray; multiproc has a local cluster."""

import sys
from types import SimpleNamespace

import pytest
from torch.distributed import HashStore

from aikido_torch.elastic import ray as elastic_ray
from aikido_torch.elastic._supervisor import Progress
from aikido_torch.errors import ConfigError, UnsupportedError


class RayError(Exception):
    pass


class Fake:
    """As much of the package ray as the adapter uses; references are names."""

    exceptions = SimpleNamespace(RayError=RayError)

    def __init__(self):
        self.values, self.options, self.killed, self.environment = {}, None, [], None

    def remote(self, kind):
        def options(**given):
            self.options = given
            return SimpleNamespace(remote=self._actor)

        return SimpleNamespace(options=options)

    def _actor(self, environment):
        self.environment = environment
        calls = {"ready": lambda: "ready", "run": lambda *arguments: "result"}
        return SimpleNamespace(
            **{name: SimpleNamespace(remote=call) for name, call in calls.items()}
        )

    def wait(self, references, timeout):
        assert timeout == 0
        return [r for r in references if r in self.values], []

    def get(self, reference):
        value = self.values[reference]
        if isinstance(value, Exception):
            raise value
        return value

    def kill(self, actor, no_restart):
        assert no_restart
        self.killed.append(actor)


def test_an_actor_goes_from_pending_to_running_to_done():
    fake = Fake()
    options = {"transient": {"num_cpus": 2}}
    store = HashStore()
    cluster = elastic_ray._RayCluster(fake, print, store, "10.0.0.1:400", options)
    member = cluster.start(0, "transient")
    assert fake.options == {"max_restarts": 0, "max_task_retries": 0, "num_cpus": 2}
    assert fake.environment == {
        "AIKIDO_ROLE": "transient",
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "400",
    }
    assert cluster.look(member) == Progress("pending")
    fake.values["ready"] = 1
    assert cluster.look(member) == Progress("running")
    fake.values["result"] = 7
    assert cluster.look(member) == Progress("done", result=7)
    cluster.stop(member)
    assert fake.killed == [member[0]]


def test_a_job_is_over_when_a_member_has_written_its_end():
    store = HashStore()
    cluster = elastic_ray._RayCluster(Fake(), print, store, "h:1", {})
    assert not cluster.is_over()
    store.set("aikido/elastic/job/ended", "10000")
    assert cluster.is_over()


def test_an_actor_that_raises_or_dies_is_dead():
    fake = Fake()
    options = {"reliable": {}}
    cluster = elastic_ray._RayCluster(fake, print, HashStore(), "h:1", options)
    member = cluster.start(0, "reliable")
    fake.values["result"] = RayError("Traceback\n  x\nValueError: shape")
    expected = Progress("dead", reason="RayError: ValueError: shape")
    assert cluster.look(member) == expected


@pytest.mark.parametrize(
    ("resources", "role", "options"),
    [
        (None, "reliable", {"num_cpus": 1, "num_gpus": 0, "resources": {}}),
        (
            {"CPU": 4, "GPU": 1, "spot": 0.5},
            "transient",
            {"num_cpus": 4, "num_gpus": 1, "resources": {"spot": 0.5}},
        ),
        (
            {"reliable": {"CPU": 2}},
            "reliable",
            {"num_cpus": 2, "num_gpus": 0, "resources": {}},
        ),
        (
            {"reliable": {"CPU": 2}},
            "transient",
            {"num_cpus": 1, "num_gpus": 0, "resources": {}},
        ),
    ],
)
def test_resources_are_those_of_a_role(resources, role, options):
    assert elastic_ray._options_of(resources, role) == options


@pytest.mark.parametrize(
    "resources", [4, {"CPU": "4"}, {"GPU": -1}, {1: 1}, {"transient": 3}, {"CPU": True}]
)
def test_wrong_resources_are_refused(resources):
    with pytest.raises(ConfigError, match="resources of a transient member are"):
        elastic_ray._options_of(resources, "transient")


def test_without_the_package_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UnsupportedError, match=r"install aikido-torch\[ray\]"):
        elastic_ray.launch(print, scaling=(1, 2))


def test_a_member_has_its_variables_and_trains(monkeypatch):
    monkeypatch.setenv("AIKIDO_ROLE", "")
    member = elastic_ray._Member({"AIKIDO_ROLE": "reliable"})
    assert member.ready() > 0
    found = member.run(lambda **given: given, "h:1", "reliable")
    assert found == {"endpoint": "h:1", "role": "reliable"}
