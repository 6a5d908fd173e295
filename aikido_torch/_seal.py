# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""A checksum at the end of a file, so that a flipped bit is found and not loaded.

The seal is a last line, "aikido sha256 <64 digits>", about all bytes before it. Readers
of archives, as torch.load, ignore bytes after the archive, so they read a sealed file
as before.
"""

import hashlib
import os
from pathlib import Path
from typing import BinaryIO

__all__ = ["check_seal", "seal"]

_BEGIN = b"\naikido sha256 "
_DIGITS = 64
_SEAL_BYTES = len(_BEGIN) + _DIGITS + 1
_CHUNK_BYTES = 1 << 20


def seal(file: BinaryIO) -> None:
    """Appends the checksum of its content to a file open for reading and writing."""
    file.seek(0, os.SEEK_END)
    digest = _digest(file, file.tell())
    file.seek(0, os.SEEK_END)
    file.write(_BEGIN + digest + b"\n")


def check_seal(path: Path) -> None:
    """Accepts a file without a seal, as earlier versions wrote it.

    Raises:
        ValueError: the file has changed since it was sealed.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END) - _SEAL_BYTES
        if size < 0:
            return
        file.seek(size)
        found = file.read()
        if not found.startswith(_BEGIN):
            return
        digest = _digest(file, size)
        if found != _BEGIN + digest + b"\n":
            raise ValueError(
                f"its checksum is wrong: it was written with "
                f"{found[len(_BEGIN) :][:12].decode(errors='replace')}... and has "
                f"{digest[:12].decode()}... now"
            )


def _digest(file: BinaryIO, num_bytes: int) -> bytes:
    """Checksum of the first `num_bytes` bytes."""
    file.seek(0)
    found = hashlib.sha256()
    while num_bytes > 0 and (part := file.read(min(num_bytes, _CHUNK_BYTES))):
        found.update(part)
        num_bytes -= len(part)
    return found.hexdigest().encode()
