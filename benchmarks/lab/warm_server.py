# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""The process from which warm.py forks programs; its argument is a socket.

Each message is a JSON object. The message of a program comes with the descriptor for
its output, and is answered by its process id. {"wait_for": process id} is answered at
the end of that process, by its exit code or by the negative number of a signal.
"""

import faulthandler
import json
import os
import runpy
import socket
import sys
from pathlib import Path
from typing import Any

# Replaces the folder of this file. Its modules have the same names as others.
sys.path.pop(0)
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
import torch._dynamo  # which the first DistributedDataParallel needs
import torch.nn.parallel
from torch._C._distributed_c10d import set_debug_level_from_env

import aikido_torch  # noqa: F401
from benchmarks.lab.helper import die_with_parent
from benchmarks.lab.network import enter

MOST_BYTES = 1 << 20  # largest message; more than arguments and environment may have


def serve(connection: socket.socket) -> tuple[dict[str, Any], int] | None:
    """Serves until the caller has gone; in a forked process, returns the program to
    run.
    """
    while True:
        message, descriptors, _, _ = socket.recv_fds(connection, MOST_BYTES, 1)
        if not message:
            return None
        request = json.loads(message)
        if "wait_for" in request:
            _, status = os.waitpid(request["wait_for"], 0)
            answer = os.waitstatus_to_exitcode(status)
        else:
            # The session must exist before the caller knows the process id and can kill
            # it.
            ready, begun = os.pipe()
            answer = os.fork()
            if answer == 0:
                die_with_parent()
                os.setsid()
                for descriptor in (connection.detach(), ready, begun):
                    os.close(descriptor)
                return request, descriptors[0]
            os.close(begun)
            os.close(descriptors[0])
            os.read(ready, 1)
            os.close(ready)
        connection.send(str(answer).encode())


def run(request: dict[str, Any], output: int) -> None:
    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    os.close(output)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    faulthandler.enable(file=2)  # writes the stacks when it is aborted
    if request["namespace"] is not None:
        enter(request["namespace"])
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["env"])
    set_debug_level_from_env()
    if threads := os.environ.get("OMP_NUM_THREADS"):
        torch.set_num_threads(int(threads))
    np.random.seed()  # otherwise all programs would have the same random numbers
    path = request["path"]
    sys.argv = [path, *request["arguments"]]
    places = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:1] = [str(Path(path).parent), *filter(None, places)]
    runpy.run_path(path, run_name="__main__")


if __name__ == "__main__":
    task = serve(socket.socket(fileno=int(sys.argv[1])))
    if task is not None:
        run(*task)
