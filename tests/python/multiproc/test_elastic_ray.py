# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""An elastic job on a local Ray cluster, one of whose actors is killed."""

import os
import signal
import threading
import time

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from aikido_torch.elastic.ray import launch

ray = pytest.importorskip("ray", reason="the package ray is not installed")
LIMIT_S = 200


def train_of(folder):
    """Training of a member that writes a file with its process when it has joined."""

    def train(endpoint, role):
        from aikido_torch import elastic

        model = torch.nn.Linear(4, 1, dtype=torch.float64)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        data = TensorDataset(
            torch.arange(256, dtype=torch.float64).reshape(64, 4) / 256
        )
        job = elastic.join(
            model,
            optimizer,
            DataLoader(data, batch_size=2),
            endpoint=endpoint,
            role=role,
            min_members=4,
            timeout=200.0,
        )
        with open(f"{folder}/{role}.{os.getpid()}", "w"):
            pass
        num_members = []
        for step in job.steps(until=300):
            for (batch,) in step:
                # The new actor takes seconds to import torch.
                time.sleep(0.3 if len(os.listdir(folder)) < 5 else 0.01)
                job.model(batch).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            num_members.append(len(job.roster.members))
        return os.getpid(), num_members, model.weight.detach().tolist()

    return train


def processes_of(folder, role="*"):
    return {int(path.suffix[1:]) for path in folder.glob(f"{role}.*")}


def wait_for_processes(folder, number):
    end = time.monotonic() + LIMIT_S
    while len(processes_of(folder)) < number:
        assert time.monotonic() < end, processes_of(folder)
        time.sleep(0.05)


@pytest.fixture
def cluster(monkeypatch):
    # On a busy machine the default, 15, lets the actors import torch for minutes.
    monkeypatch.setenv("RAY_worker_niceness", "0")
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.mark.timeout(600)
def test_a_killed_actor_is_replaced_and_the_training_goes_on(cluster, tmp_path):
    killed = []

    def kill_one():
        wait_for_processes(tmp_path, 4)
        killed.append(processes_of(tmp_path, "transient").pop())
        os.kill(killed[0], signal.SIGKILL)

    killer = threading.Thread(target=kill_one)
    killer.start()
    results = launch(train_of(tmp_path), scaling=(2, 4), timeout=LIMIT_S)
    killer.join()
    assert len(results) == 4
    pids = {pid for pid, _, _ in results}
    first = processes_of(tmp_path) - pids
    assert first == set(killed)  # no other process ended
    assert len(processes_of(tmp_path)) == 5
    assert all(weights == results[0][2] for _, _, weights in results)
    longest = max((numbers for _, numbers, _ in results), key=len)
    changes = [n for i, n in enumerate(longest) if i == 0 or n != longest[i - 1]]
    assert changes == [4, 3, 4]
