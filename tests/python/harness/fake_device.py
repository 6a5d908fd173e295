# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""The device of fake_device.cpp, for what only happens with streams and copies.

With it come the backend of fake_nccl.cpp, to be inside of aikido's for its tensors, and
its memory for other processes, of fake_ipc.cpp.

`library()` compiles it once; a rank calls `install(library)` with the group made, and
then has tensors on DEVICE, streams by number and faults by order (`torch.ops.fake`).
"""

import functools
import importlib.util
import types
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist

from benchmarks import torch_library

HERE = Path(__file__).parent
SOURCES = [HERE / f"fake_{name}.cpp" for name in ("device", "ipc", "nccl")]
HEADERS = [HERE / "fake_device.h", HERE / "fake_ipc.h"]
CORE = HERE.parents[2] / "csrc"
DEVICE = "privateuseone"


@functools.cache
def library():
    """Its path; of this source and this torch."""
    # The one class of ours that it fills in, and so has to be the module's.
    ours = [CORE / "c10d" / "device_memory.h", CORE / "base" / "types.h"]
    return str(torch_library.build("fake_device", SOURCES, read=[*HEADERS, *ours]))


def install(path):
    """Makes the device known to torch, and to the default group."""
    module = types.ModuleType(f"torch.{DEVICE}")
    module._lazy_init = lambda: None
    module.is_available = lambda: True
    module.device_count = lambda: 2
    module.current_device = lambda: 0
    torch._register_device_module(DEVICE, module)
    torch.ops.load_library(path)
    group = dist.group.WORLD
    backend = group._get_backend(torch.device("cpu"))
    group._register_backend(
        torch.device(DEVICE), dist.ProcessGroup.BackendType.CUSTOM, backend
    )


def module(path):
    """What fake_nccl.cpp gives to Python; after install()."""
    spec = importlib.util.spec_from_file_location("fake_nccl", path)
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def nccl_class(path):
    """Of an inner backend that is made of a Gloo; after install()."""
    return module(path).FakeNccl


@contextmanager
def stream(number):
    before = torch.ops.fake.use_stream(number)
    try:
        yield
    finally:
        torch.ops.fake.use_stream(before)


def late(tensor, value, ms):
    """`tensor` on the device, filled with `value` after `ms` of its stream."""
    torch.ops.fake.keep_busy(ms)
    return tensor.fill_(value)


def plain(tensor):
    """The same values on the device."""
    return tensor.to(DEVICE)


def strided(tensor):
    """The same values on the device, in memory with gaps."""
    wide = torch.empty((*tensor.shape, 2), dtype=tensor.dtype, device=DEVICE)
    wide[..., 0].copy_(tensor)
    return wide[..., 0]
