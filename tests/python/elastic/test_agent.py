# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import signal
import sys
from types import SimpleNamespace

import pytest
import torch.distributed as dist

from aikido_torch.elastic._agent import (
    Agent,
    Launch,
    endpoint_of,
    python_command,
    serve_store,
)
from aikido_torch.elastic._restarts import RestartPolicy
from aikido_torch.errors import ConfigError
from aikido_torch.testing._ranks import _free_port


class Process:
    """Context of a process that ends when a test says so."""

    def __init__(self, machine, slot, restarts):
        self.machine, self.slot, self.restarts = machine, slot, restarts
        self.exit_code = None

    def wait(self, timeout):
        assert timeout == 0
        if self.exit_code is None:
            return None
        failures = {0: SimpleNamespace(exitcode=self.exit_code)}
        return SimpleNamespace(failures=failures if self.exit_code else {})

    def pids(self):
        return {0: 1000 + self.slot}

    def close(self, number, timeout):
        self.exit_code = -number


class Machine:
    """Agent with fake processes and a manual clock."""

    def __init__(self, num_processes=2, **policy):
        self.lines, self.started, self.now_s = [], [], 0.0
        launch = Launch(
            ["train"],
            num_processes,
            "host:1",
            grace_s=30,
            policy=RestartPolicy(**policy),
        )
        self.agent = Agent(
            launch,
            tell=self.lines.append,
            clock=lambda: self.now_s,
            start=self._start,
        )

    def _start(self, launch, slot, restarts):
        process = Process(self, slot, restarts)
        self.started.append(process)
        return process

    def turn(self, seconds=0.0):
        self.now_s += seconds
        return self.agent.turn()


@pytest.fixture
def sent(monkeypatch):
    found = []
    monkeypatch.setattr("os.kill", lambda pid, number: found.append((pid, number)))
    return found


def test_the_agent_ends_when_all_processes_are_done():
    machine = Machine()
    assert not machine.turn()
    first, second = machine.started
    first.exit_code = 0
    assert not machine.turn()
    second.exit_code = 0
    assert machine.turn()
    assert machine.agent.exit_code == 0
    assert machine.lines == [
        "slot 0: process 1000 starts",
        "slot 1: process 1001 starts",
        "slot 0: the process ended with code 0",
        "slot 1: the process ended with code 0",
    ]


def test_a_dead_process_is_replaced_and_a_healthy_one_is_not():
    machine = Machine()
    machine.turn()
    machine.started[0].exit_code = -signal.SIGKILL
    machine.turn()
    assert len(machine.started) == 2  # the pause
    machine.turn(1.0)
    assert [(p.slot, p.restarts) for p in machine.started] == [(0, 0), (1, 0), (0, 1)]
    assert machine.started[1].exit_code is None


def test_a_process_that_dies_again_and_again_is_given_up_and_the_others_go_on():
    machine = Machine(max_restarts=1)
    machine.turn()
    for _ in range(2):
        machine.started[-1].exit_code = 1
        machine.turn()
        assert not machine.turn(30.0)
    assert len(machine.started) == 3
    machine.started[0].exit_code = 0
    assert machine.turn()
    assert machine.agent.exit_code == 1
    assert "give a larger --max-restarts" in machine.lines[-2]


def test_a_notice_goes_to_all_processes_and_starts_no_new_one(sent):
    machine = Machine(num_processes=3)
    machine.turn()
    machine.started[2].exit_code = 1
    machine.turn()  # slot 2 waits for its restart
    machine.agent.notify(signal.SIGTERM)
    assert not machine.turn(5.0)
    assert sent == [(1000, signal.SIGTERM), (1001, signal.SIGTERM)]
    machine.started[0].exit_code = 0
    machine.started[1].exit_code = -signal.SIGTERM
    assert machine.turn()
    assert len(machine.started) == 3
    assert machine.agent.exit_code == 0


def test_processes_are_killed_when_the_grace_period_is_over(sent):
    machine = Machine()
    machine.turn()
    machine.agent.notify(signal.SIGUSR1)
    machine.turn()
    assert not machine.turn(29.0)
    assert machine.turn(1.0)
    assert [p.exit_code for p in machine.started] == [-signal.SIGKILL] * 2
    assert "are killed in 30 s" in machine.lines[2]


def test_a_second_notice_does_not_extend_the_grace_period(sent):
    machine = Machine()
    machine.turn()
    for _ in range(2):
        machine.agent.notify(signal.SIGTERM)
        machine.turn(20.0)
    assert machine.turn(10.0)


def test_a_process_knows_its_role_its_store_and_its_slot(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    launch = Launch(["train"], 2, "[::1]:29400", role="reliable", job="bert")
    assert launch.environment_of(1, restarts=3) == {
        "AIKIDO_ROLE": "reliable",
        "MASTER_ADDR": "::1",
        "MASTER_PORT": "29400",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
        "TORCHELASTIC_RUN_ID": "bert",
        "TORCHELASTIC_RESTART_COUNT": "3",
        "OMP_NUM_THREADS": "1",
    }


def test_the_command_of_a_script_a_module_or_a_program():
    assert python_command("t.py", ["--x"], "script") == [
        sys.executable,
        "-u",
        "t.py",
        "--x",
    ]
    assert python_command("pkg.t", [], "module")[1:] == ["-u", "-m", "pkg.t"]
    assert python_command("./t", ["1"], "program") == ["./t", "1"]


@pytest.mark.parametrize("text", ["", "host", "host:", ":1", "host:x", "host:70000"])
def test_a_wrong_endpoint_is_refused(text):
    with pytest.raises(ConfigError, match="give host:port of the store"):
        endpoint_of(text)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"command": []}, "there is no program"),
        ({"num_processes": 0}, "--nproc-per-node is 0"),
        ({"role": "spot"}, "--role is 'spot'; it takes 'reliable' or 'transient'"),
        ({"grace_s": -1}, "--grace is -1"),
        ({"endpoint": "x"}, "the endpoint is 'x'"),
    ],
)
def test_wrong_arguments_are_refused(arguments, text):
    right = {"command": ["t"], "num_processes": 1, "endpoint": "h:1"}
    with pytest.raises(ConfigError, match=text):
        Launch(**(right | arguments))


def test_a_second_store_on_an_endpoint_is_refused():
    endpoint = f"127.0.0.1:{_free_port()}"
    store = serve_store(endpoint)
    with pytest.raises(
        ConfigError, match=f"cannot listen on {endpoint}: .*another job"
    ):
        serve_store(endpoint)
    host, port = endpoint_of(endpoint)
    client = dist.TCPStore(host, port, is_master=False, wait_for_workers=False)
    client.set("key", "value")
    assert store.get("key") == b"value"
