# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""A job under the agent of a machine, looked at and changed by commands."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest
from typer.testing import CliRunner

from aikido_torch.elastic.__main__ import app
from aikido_torch.testing._ranks import _free_port

LIMIT_S = 100
TRAIN = """
    import os, sys, time
    import torch
    from torch.utils.data import DataLoader, TensorDataset
    from aikido_torch import elastic

    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(TensorDataset(torch.ones(64, 4)), batch_size=2)
    endpoint = os.environ["MASTER_ADDR"] + ":" + os.environ["MASTER_PORT"]
    job = elastic.join(model, optimizer, loader, endpoint=endpoint, role="reliable",
                       host=f"host-{os.getpid()}", min_members=3, timeout=60.0)
    for step in job.steps(until=1_000_000):
        for (batch,) in step:
            time.sleep(0.01)
            job.model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if os.path.exists(sys.argv[1]):
            job.evict()
    print("left at step", job.sampler.step, flush=True)
    """


@pytest.fixture
def endpoint():
    return f"127.0.0.1:{_free_port()}"


def run(endpoint, *args):
    result = CliRunner().invoke(app, [*args, "--rdzv-endpoint", endpoint])
    return result.exit_code, result.output


def status_with(endpoint, text):
    """Output of `status` as soon as it has this text."""
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        code, output = run(endpoint, "status")
        if code == 0 and text in output:
            return output
        time.sleep(0.1)
    raise AssertionError(output)


def members_of(output):
    """(member, process) of each row, in rank order."""
    rows = [line.split("│") for line in output.splitlines() if "reliable" in line]
    return [(row[2].strip(), int(row[5])) for row in rows]


@pytest.mark.timeout(240)
def test_members_are_shown_killed_replaced_and_evicted(tmp_path, endpoint):
    program, end = tmp_path / "train.py", tmp_path / "end"
    program.write_text(textwrap.dedent(TRAIN))
    command = [
        sys.executable, "-m", "aikido_torch.elastic", "run", "--rdzv-endpoint",
        endpoint, "--serve-store", "--nproc-per-node", "3", "--role", "reliable",
        str(program), str(end),
    ]  # fmt: skip
    agent = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        first = members_of(status_with(endpoint, "2    │"))
        assert len(first) == 3
        os.kill(first[1][1], signal.SIGKILL)
        status_with(endpoint, "│ 4 ")  # member 4 has joined
        second = members_of(status_with(endpoint, "│ 4 "))
        assert second[:2] == [first[0], first[2]]  # no other process was restarted
        assert run(endpoint, "stage")[1].startswith("stage 1 stays: 0 transient to 3")
        code, output = run(endpoint, "evict", "2")
        assert code == 0
        assert "rank 2 is member 4 (reliable)" in output
        while len(members_of(status_with(endpoint, "steps lost"))) == 3:
            time.sleep(0.1)
        end.touch()
        output, _ = agent.communicate(timeout=LIMIT_S)
    finally:
        agent.kill()
    assert agent.returncode == 0, output
    assert output.count("left at step") == 3
    assert output.count("starts") == 5  # four processes and the restart of one
    assert output.count("was ended by SIGKILL; a new one starts") == 1
