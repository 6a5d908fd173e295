# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""The model profiler: finds the layers of a model, and measures their times and sizes.

`aikido_torch.pipeline` cuts a model by it, and `aikido_torch.ordering` orders transfers
by it. The package exports no names. `aikido_torch.pipeline` exports the public names.
"""

__all__: list[str] = []
