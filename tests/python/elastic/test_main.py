# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import sys
import time
from types import SimpleNamespace

import pytest
from torch.distributed import TCPStore
from typer.testing import CliRunner

from aikido_torch.elastic import __main__ as commands
from aikido_torch.elastic.__main__ import app
from aikido_torch.elastic._endpoint import Endpoint
from aikido_torch.elastic._status import Status, StatusMember


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


@pytest.fixture
def job():
    """Endpoint of a job with two members."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    endpoint = Endpoint(f"127.0.0.1:{store.port}", "job")
    members = (
        StatusMember(1, "reliable", "host-a", 11),
        StatusMember(9, "transient", "host-b", 12),
    )
    status = Status(70, 2, 1, members, 1, 5.0, 100.0, time.time())
    endpoint.set("status", status.encode())
    yield endpoint
    del store


def test_status_shows_the_members_and_the_progress(job):
    result = run("status", "--rdzv-endpoint", job.address)
    assert result.exit_code == 0, result.output
    assert "host-b" in result.output
    line = "step 70, epoch 2, stage 1, 1 steps lost, 5.0 s of stall, goodput 95.0%"
    assert line in result.output


def test_the_endpoint_may_come_from_the_environment(job, monkeypatch):
    host, port = job.address.split(":")
    monkeypatch.setenv("MASTER_ADDR", host)
    monkeypatch.setenv("MASTER_PORT", port)
    result = run("stage")
    assert result.output == (
        "stage 1 stays: 1 transient to 1 reliable members, ratio 1\n"
    )
    monkeypatch.delenv("MASTER_PORT")
    assert "where is the job? Give --rdzv-endpoint" in run("stage").output


def test_evict_gives_the_member_of_a_rank_its_notice(job):
    result = run("evict", "1", "--rdzv-endpoint", job.address, "--warning", "12")
    assert "rank 1 is member 9 (transient) on host-b" in result.output
    assert "of its host leave" not in result.output
    assert float(job.read("evict/9")) == 12.0
    assert job.read("evict/1") is None


def test_evict_names_the_other_members_of_the_host(job):
    members = [StatusMember(n, "transient", "host-b", n) for n in (4, 9, 12)]
    members.append(StatusMember(13, "transient", "host-c", 13))
    status = Status(70, 2, 1, tuple(members), 1, 5.0, 100.0, time.time())
    job.set("status", status.encode())
    result = run("evict", "1", "--rdzv-endpoint", job.address)
    assert "these members of its host leave, too: 4, 12\n" in result.output


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("evict", "2"), "there is no rank 2; the job has ranks 0 to 1"),
        (("evict", "1", "--warning", "nan"), "--warning is nan"),
        (("status", "--rdzv-id", "other"), "the job 'other' at"),
    ],
)
def test_a_wrong_command_gets_a_sentence(job, arguments, text):
    command, *more = arguments
    result = run(command, "--rdzv-endpoint", job.address, *more)
    assert result.exit_code == 1
    assert text in result.output


def test_metrics_serves_the_status_of_the_job(job, monkeypatch):
    served = []

    def serve(name, read, **where):
        served.append((name, read().step, where))
        return None, SimpleNamespace(join=lambda: None)

    monkeypatch.setattr(commands, "serve_metrics", serve)
    result = run("metrics", "--rdzv-endpoint", job.address, "--port", "1")
    assert result.exit_code == 0, result.output
    assert served == [("job", 70, {"host": "127.0.0.1", "port": 1})]
