# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""The device of fake_device.cpp, for tests of streams and copies without a GPU.

The library also has the backend of fake_nccl.cpp, which serves as the inner backend for
tensors on this device. Code in fake_ipc.cpp lets other processes reach the memory of
the device.

`library()` compiles all of it once. A rank makes its group and calls
`install(library)`. Then it can make tensors on DEVICE, select streams by number and
request faults (`torch.ops.fake`).
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
    """Path of the library, compiled from these sources against the installed torch."""
    # The library implements DeviceMemory, so it must see the same class as the module.
    ours = [CORE / "c10d/common/device_memory.h", CORE / "base" / "types.h"]
    return str(torch_library.build("fake_device", SOURCES, read=[*HEADERS, *ours]))


def install(path):
    """Makes the device known to torch and to the default group."""
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
    """Python module of fake_nccl.cpp; call install() first."""
    spec = importlib.util.spec_from_file_location("fake_nccl", path)
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def nccl_class(path):
    """Class of an inner backend that wraps a Gloo backend; call install() first."""
    return module(path).FakeNccl


@contextmanager
def stream(number):
    before = torch.ops.fake.use_stream(number)
    try:
        yield
    finally:
        torch.ops.fake.use_stream(before)


def late(tensor, value, ms):
    """`tensor` on the device; its stream fills it with `value` after `ms` of work."""
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
