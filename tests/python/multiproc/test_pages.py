# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Python code of README and docs/ runs, on two ranks or for the README on three."""

import contextlib
import io
import os

import pytest

from aikido_torch.testing import run_ranks
from aikido_torch.testing._ranks import _free_port
from docs import pages

# Objects that the text around the code leaves to the user.
BEFORE = {
    "choose-a-policy.md": """
import aikido_torch, contextlib, torch, torch.distributed as dist
from aikido_torch.straggler import SkipStraggler
tensor, steps, gradient = torch.ones(3), 2, lambda step: torch.ones(3)
loader = batches = [torch.ones(2, 4)] * 4

def trained():
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
    return model, torch.optim.SGD(model.parameters(), lr=0.1)

def loss_of(model, batch):
    return model(batch).square().mean()

first, its_optimizer = trained()
handle = aikido_torch.ddp.register(first, optimizer=its_optimizer)

def train_one_step(batch):
    its_optimizer.zero_grad()
    loss_of(first, batch).backward()
    its_optimizer.step()

model, optimizer = trained()
net = torch.nn.Linear(4, 2)
""",
    "priorities.md": """
import aikido_torch, torch, torch.distributed as dist
first_layer, last_layer, tensor = torch.ones(3), torch.ones(9), torch.ones(3)
dst = 1 - dist.get_rank()
""",
    "ordering.md": """
import aikido_torch, torch
model, inputs = torch.nn.Sequential(torch.nn.Linear(4, 2)), torch.randn(8, 4)
""",
    "market.md": """
import gzip, json, os

def put(name, data):  # both ranks write, and none reads a part
    with open(f"{name}.{os.getpid()}", "wb") as file:
        file.write(data)
    os.replace(f"{name}.{os.getpid()}", name)

lines = [f"{i * 600},{0.05 + 0.01 * (i % 7)}" for i in range(500)]
text = "\\n".join(["unix_seconds,usd_per_hour", *lines]) + "\\n"
put("us-east-1b_c3.xlarge.csv.gz", gzip.compress(text.encode()))
samples = {"metadata": {"gap_seconds": 195}, "data": [1, 1, 0, 1] * 200}
put("availability.json", json.dumps(samples).encode())
""",
    "reassign.md": """
import torch
from torch.nn.parallel import DistributedDataParallel
net, dataset, epochs = torch.nn.Linear(4, 2), torch.ones(1024, 4), 2

def loss_of(model, batch):
    return model(batch).square().mean()
""",
    "trace.md": """
import aikido_torch, logging, torch
net = torch.nn.Linear(4, 2)
aikido_torch.trace.watch(net, torch.optim.SGD(net.parameters(), lr=0.1))
""",
}
AFTER = {"priorities.md": "dist.recv(tensor, dst, tag=3)"}
SHOWN = [path for path in pages.PAGES if pages.code_blocks(path.read_text())]


def run_blocks(rank, size, name, blocks, port, folder):
    os.chdir(folder)
    names = {"local_rank": rank + port - 9464}
    with contextlib.redirect_stdout(io.StringIO()):
        for text in (BEFORE.get(name, ""), *blocks, AFTER.get(name, "")):
            exec(compile(text, name, "exec"), names)


@pytest.mark.parametrize("page", SHOWN, ids=lambda path: path.name)
def test_the_code_of_a_page_runs(page, tmp_path):
    blocks = pages.code_blocks(page.read_text())
    port = _free_port()
    arguments = (page.name, blocks, port, str(tmp_path))
    if page.name == "README.md":
        env = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        run_ranks(3, run_readme, *arguments, backend=None, env=env)
    else:
        run_ranks(2, run_blocks, *arguments)


def run_readme(rank, size, *arguments):
    os.environ["RANK"], os.environ["WORLD_SIZE"] = str(rank), str(size)
    run_blocks(rank, size, *arguments)
