# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest
import torch

from aikido_torch._seal import check_seal, seal


def write_sealed(path, content=b"some content"):
    with path.open("w+b") as file:
        file.write(content)
        seal(file)


def test_a_flipped_byte_is_detected(tmp_path):
    path = tmp_path / "file"
    write_sealed(path)
    check_seal(path)
    data = path.read_bytes()
    # A flipped byte before the digits makes the file look unsealed, so only bytes of
    # the content and of the digits are flipped.
    for at in [*range(12), *range(len(data) - 65, len(data))]:
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(ValueError, match="checksum is wrong"):
            check_seal(path)


def test_a_file_of_an_earlier_version_is_accepted(tmp_path):
    for content in (b"", b"x" * 200):
        (tmp_path / "file").write_bytes(content)
        check_seal(tmp_path / "file")


def test_torch_reads_a_sealed_file(tmp_path):
    path = tmp_path / "file"
    with path.open("w+b") as file:
        torch.save({"a": torch.arange(3)}, file)
        seal(file)
    assert torch.load(path, weights_only=True)["a"].tolist() == [0, 1, 2]
