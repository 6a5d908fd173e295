# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""`python -m aikido_torch`: the same as the command `aikido`."""

from aikido_command import main

if __name__ == "__main__":
    main("python -m aikido_torch")
