# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import sys

import pytest
from typer.testing import CliRunner

from aikido_torch.elastic import __main__ as commands
from aikido_torch.elastic.__main__ import app


def run(*args):
    return CliRunner().invoke(app, list(args), prog_name="aikido elastic")


@pytest.fixture
def agent(monkeypatch):
    """The launches and the stores of the agents that were run."""
    found = []

    class Agent:
        def __init__(self, launch, *, tell):
            found.append(launch)
            tell("a line")

        def run(self):
            return 3

    monkeypatch.setattr(commands, "Agent", Agent)
    monkeypatch.setattr(commands, "_STORE_END_S", 0.0)
    monkeypatch.setattr(
        commands, "serve_store", lambda endpoint: found.append(endpoint)
    )
    return found


def test_run_starts_the_agent_with_options_like_those_of_torchrun(agent):
    result = run(
        "run", "--rdzv-endpoint", "host:1", "--nproc-per-node", "4", "--role",
        "reliable", "--rdzv-id", "bert", "--max-restarts", "7", "--grace", "5",
        "--log-dir", "logs", "train.py", "--role", "x", "-m",
    )  # fmt: skip
    assert result.exit_code == 3
    assert "aikido elastic: a line" in result.output
    [launch] = agent
    assert launch.command == [sys.executable, "-u", "train.py", "--role", "x", "-m"]
    assert (launch.num_processes, launch.role, launch.job) == (4, "reliable", "bert")
    assert (launch.grace_s, launch.log_dir) == (5.0, "logs")
    assert launch.policy.max_restarts == 7


@pytest.mark.parametrize(
    ("option", "command"),
    [
        ("--module", [sys.executable, "-u", "-m", "train"]),
        ("--no-python", ["train"]),
    ],
)
def test_a_program_is_a_module_or_no_python(agent, option, command):
    run("run", "--rdzv-endpoint", "host:1", option, "train")
    assert agent[0].command == command


def test_one_agent_serves_the_store(agent):
    run("run", "--rdzv-endpoint", "host:1", "--serve-store", "train.py")
    assert agent[0] == "host:1"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--rdzv-endpoint", "host"), "the endpoint is 'host'; give host:port"),
        (("--rdzv-endpoint", "h:1", "--nproc-per-node", "0"), "--nproc-per-node is 0"),
        (("--rdzv-endpoint", "h:1", "--max-restarts", "-1"), "max_restarts is -1"),
    ],
)
def test_a_wrong_option_gets_a_sentence(options, text):
    result = run("run", *options, "train.py")
    assert result.exit_code == 1
    assert text in result.output


def test_options_that_exclude_each_other_are_refused(agent):
    result = run("run", "--rdzv-endpoint", "h:1", "-m", "--no-python", "train")
    assert result.exit_code == 2
    assert not agent
