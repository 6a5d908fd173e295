# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Arguments of `join` that are wrong, or differ from those of the job."""

import pytest
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

from aikido_torch import elastic
from aikido_torch.errors import ConfigError, PeerLostError, TimedOutError


@pytest.fixture
def store():
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    yield store
    if dist.is_initialized():
        dist.destroy_process_group()


def join(store, *, width=3, items=12, optimizer=torch.optim.SGD, **options):
    model = torch.nn.Linear(2, width)
    loader = DataLoader(range(items), batch_size=options.pop("batch_size", 4))
    options = {"endpoint": f"127.0.0.1:{store.port}", "role": "reliable"} | options
    return elastic.join(model, optimizer(model.parameters(), lr=0.1), loader, **options)


def test_another_role_is_refused(store):
    with pytest.raises(ConfigError, match=r"role is 'spot'; give \"reliable\" or"):
        join(store, role="spot")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"width": 4},
            r"parameter weight is torch.float32 \[4, 2\] here but .*\[3, 2\]",
        ),
        ({"items": 13}, "dataset is 13 items here but 12 items in the job 'job'"),
        ({"batch_size": 2}, "batch size is 2 here but 4"),
        ({"optimizer": torch.optim.Adam}, "optimizer is Adam here but SGD"),
        ({"seed": 1}, "seed is 1 here but 0 in the job"),
    ],
)
def test_a_process_that_does_not_fit_is_refused_before_the_job_notices(
    store, options, text
):
    job = join(store)
    members = job.roster
    with pytest.raises(ConfigError, match=text):
        join(store, **options)
    assert job.roster == members
    job.close()


def test_a_transient_process_waits_for_a_reliable_one(store):
    with pytest.raises(TimedOutError, match="no reliable member has admitted"):
        join(store, role="transient", timeout=0.1)


def test_a_job_begins_with_its_members_or_ends_with_a_sentence(store):
    with pytest.raises(TimedOutError, match=r"1 of 3 members have come in 0\.1 s"):
        join(store, min_members=3, timeout=0.1)


def test_the_agent_gives_endpoint_role_and_name(store, monkeypatch):
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(store.port))
    monkeypatch.setenv("AIKIDO_ROLE", "reliable")
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "night")
    job = join(store, endpoint=None, role=None)
    assert job.role == "reliable"
    with pytest.raises(ConfigError, match="seed is 1 here but 0 in the job 'night'"):
        join(store, endpoint=None, role=None, seed=1)
    job.close()


def test_without_an_agent_the_endpoint_is_needed(store, monkeypatch):
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with pytest.raises(ConfigError, match="there is no endpoint"):
        join(store, endpoint=None)


def test_an_endpoint_without_a_store_is_refused():
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    port = store.port
    del store
    with pytest.raises(PeerLostError, match=f"127.0.0.1:{port} does not answer"):
        elastic.join(
            torch.nn.Linear(1, 1),
            torch.optim.SGD([torch.nn.Parameter(torch.ones(1))]),
            DataLoader(range(4), batch_size=2),
            endpoint=f"127.0.0.1:{port}",
        )
