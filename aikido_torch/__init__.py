# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""aikido: collectives for PyTorch that need not wait for a late rank.

```python
import torch.distributed as dist
import aikido_torch

dist.init_process_group("aikido")
```
"""

from pathlib import Path

import torch  # loads the libraries that the native module links against

_REBUILD = "pip install --no-build-isolation --force-reinstall --no-deps <aikido>"
_running = ".".join(torch.__version__.split(".")[:2])

try:
    from aikido_torch._C import build_info
except ImportError as error:
    _here = Path(__file__).parent
    if (_here.parent / "setup.py").exists() and not list(_here.glob("_C.*.so")):
        raise ImportError(
            f"{_here} is aikido's source folder and has no native module; Python finds "
            "it before an installed aikido when it runs in the clone or has the clone "
            "in its path. Run the command in another folder, or build the module in "
            f"this one: pip install --no-build-isolation -e {_here.parent}"
        ) from error
    raise ImportError(
        f"The native module of aikido does not load with torch {torch.__version__} "
        f"({error}). Build it in this environment: {_REBUILD}"
    ) from error

_built_for = build_info()["torch"]
if _built_for != _running:
    raise ImportError(
        f"This aikido was built for torch {_built_for} but torch {torch.__version__} "
        f"is installed. Install torch=={_built_for}.*, or build again: {_REBUILD}"
    )

from aikido_torch import (  # noqa: E402
    _C,
    data,
    ddp,
    elastic,
    errors,
    ordering,
    overlap,
    pipeline,
    reassign,
    straggler,
    trace,
)
from aikido_torch._backend import register_backend  # noqa: E402
from aikido_torch._C import AikidoWork, Outcome  # noqa: E402
from aikido_torch._calls import (  # noqa: E402
    all_reduce,
    reduce_scatter,
    reduce_scatter_tensor,
    send,
)
from aikido_torch._members import (  # noqa: E402
    agree_members as agree_members,  # not part of the stable interface yet
)
from aikido_torch._members import reconfigure, reconfigure_handle  # noqa: E402
from aikido_torch._repr import show_attributes, show_properties  # noqa: E402
from aikido_torch.options import Options  # noqa: E402
from aikido_torch.straggler._share_watch import ShareWatch  # noqa: E402
from aikido_torch.trace.export._metrics import Metrics  # noqa: E402
from aikido_torch.trace.record._log import EventLog  # noqa: E402
from aikido_torch.trace.record._watch import Watch  # noqa: E402

__version__: str = build_info()["version"]
__all__ = [
    "AikidoWork",
    "Options",
    "Outcome",
    "all_reduce",
    "data",
    "ddp",
    "elastic",
    "errors",
    "ordering",
    "overlap",
    "pipeline",
    "reassign",
    "reconfigure",
    "reconfigure_handle",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "send",
    "straggler",
    "trace",
]

register_backend()

_values = (
    *("BatchPlan", "Bounds", "LinkCost", "LinkFit", "Op", "OpGraph", "OpSpan"),
    *("Timeline", "TransferBatch", "TransferWindow", "Instruction", "Layer", "Plan"),
    *("Profile", "RankMemory", "Simulation", "Span", "Stage", "Validation"),
)
show_properties(*(getattr(_C, name) for name in _values))
_counts = ("steps", "replayed_steps", "copied_steps", "skipped_steps", "carried_steps")
show_attributes(AikidoWork, "outcome")
show_attributes(ddp.Handle, *_counts)
show_attributes(pipeline.Pipeline, "rank", "steps", "schedule")
_sampler = ("rank", "num_primaries", "num_backups", "batch_size", "epoch", "policy")
show_attributes(data.BackupSampler, *_sampler)
show_attributes(reassign.StepLoader, "epoch", "helpers", "lost")
show_attributes(straggler.Carry, "_is_pending")
show_attributes(data.SeededDataset, "dataset", "seed", "epoch")
show_attributes(ShareWatch, "_rank", "_size", "last")
show_attributes(EventLog, "_name")
show_attributes(Metrics, "port")
show_attributes(Watch, "_names")
