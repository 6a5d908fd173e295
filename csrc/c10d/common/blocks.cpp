// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "c10d/common/blocks.h"

#include <cstring>

#include "c10d/common/call_of.h"
#include "c10d/common/overlap.h"

namespace aikido::adapter {
namespace {

// A view without elements has no rows to count bytes in.
size_t bytes_per_row(const at::Tensor& tensor) {
  const int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  return rows == 0 ? 0 : tensor.nbytes() / static_cast<size_t>(rows);
}

// `data`: address of the data of `tensor`.
template <class Block, class Byte>
std::vector<Block> parts_of(Byte* data, const at::Tensor& tensor,
                            const std::vector<int64_t>& splits, int size) {
  std::vector<Block> blocks;
  blocks.reserve(static_cast<size_t>(size));
  const size_t row = splits.empty() ? 0 : bytes_per_row(tensor);
  const size_t even = tensor.nbytes() / static_cast<size_t>(size);
  for (int32_t r = 0; r < size; ++r) {
    const size_t bytes =
        splits.empty() ? even
                       : static_cast<size_t>(splits[static_cast<size_t>(r)]) * row;
    blocks.push_back({Rank(r), data, bytes});
    data += bytes;
  }
  return blocks;
}

bool is_in_place(const OutBlock& out, const InBlock& in, Rank own) {
  return out.to == own && in.from == own && out.data == in.data &&
         out.bytes == in.bytes;
}

}  // namespace

OutBlock out_block(int rank, const at::Tensor& tensor) {
  return {Rank(rank), bytes_of(tensor), tensor.nbytes()};
}

InBlock in_block(int rank, const at::Tensor& tensor) {
  return {Rank(rank), mutable_bytes_of(tensor), tensor.nbytes()};
}

OutBlocks out_blocks(const std::vector<at::Tensor>& tensors) {
  OutBlocks blocks;
  blocks.reserve(tensors.size());
  for (const at::Tensor& t : tensors)
    blocks.push_back(out_block(static_cast<int>(blocks.size()), t));
  return blocks;
}

InBlocks in_blocks(const std::vector<at::Tensor>& tensors) {
  InBlocks blocks;
  blocks.reserve(tensors.size());
  for (const at::Tensor& t : tensors)
    blocks.push_back(in_block(static_cast<int>(blocks.size()), t));
  return blocks;
}

OutBlocks out_blocks(const at::Tensor& tensor, const std::vector<int64_t>& splits,
                     int size) {
  return parts_of<OutBlock>(bytes_of(tensor), tensor, splits, size);
}

InBlocks in_blocks(const at::Tensor& tensor, const std::vector<int64_t>& splits,
                   int size) {
  return parts_of<InBlock>(mutable_bytes_of(tensor), tensor, splits, size);
}

void set_apart(OutBlocks& outs, const InBlocks& ins, int own,
               std::vector<at::Tensor>& held) {
  for (OutBlock& out : outs) {
    for (const InBlock& in : ins) {
      if (is_in_place(out, in, Rank(own)) ||
          !overlap(out.data, out.bytes, in.data, in.bytes))
        continue;
      const at::Tensor copy =
          held.emplace_back(at::empty({static_cast<int64_t>(out.bytes)}, at::kByte));
      std::memcpy(mutable_bytes_of(copy), out.data, out.bytes);
      out.data = bytes_of(copy);
      break;
    }
  }
}

}  // namespace aikido::adapter
