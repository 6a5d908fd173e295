// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Blocks of contiguous host tensors by rank, as plain addresses. A torch view takes
// microseconds, and a call of n ranks would need 2 n views. The owner of the blocks
// must keep their tensors alive. Any thread.

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "collectives/operation.h"

namespace aikido::adapter {

using collectives::InBlock;
using collectives::OutBlock;
using InBlocks = std::vector<InBlock>;
using OutBlocks = std::vector<OutBlock>;

// The whole tensor as one block.
OutBlock out_block(int rank, const at::Tensor& tensor);
InBlock in_block(int rank, const at::Tensor& tensor);

// One tensor for each rank, in rank order.
OutBlocks out_blocks(const std::vector<at::Tensor>& tensors);
InBlocks in_blocks(const std::vector<at::Tensor>& tensors);

// Parts of one tensor along its first dimension, of `splits` rows each. Without splits,
// equal parts for `size` ranks. Requires: check_splits (tensor_check.h).
OutBlocks out_blocks(const at::Tensor& tensor, const std::vector<int64_t>& splits,
                     int size);
InBlocks in_blocks(const at::Tensor& tensor, const std::vector<int64_t>& splits,
                   int size);

// Output blocks are written while input blocks may still be read. So blocks to send
// (`outs`) that overlap blocks to receive (`ins`) are copied, into tensors that are
// appended to `held`. The block of rank `own` for itself may overlap its destination,
// because it is read before it is written.
void set_apart(OutBlocks& outs, const InBlocks& ins, int own,
               std::vector<at::Tensor>& held);

}  // namespace aikido::adapter
