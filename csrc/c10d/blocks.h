// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// What of contiguous host tensors goes to each rank, and comes from it: addresses
// alone. A view of a tensor takes torch microseconds, and a call of n ranks would need
// 2 n of them. So whoever has blocks keeps their tensors. Any thread.

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "collectives/operation.h"

namespace aikido::adapter {

using collectives::InBlock;
using collectives::OutBlock;
using InBlocks = std::vector<InBlock>;
using OutBlocks = std::vector<OutBlock>;

// All of a tensor.
OutBlock out_block(int rank, const at::Tensor& tensor);
InBlock in_block(int rank, const at::Tensor& tensor);

// One tensor for each rank, in their order.
OutBlocks out_blocks(const std::vector<at::Tensor>& tensors);
InBlocks in_blocks(const std::vector<at::Tensor>& tensors);

// Parts of one tensor along its first dimension, of `splits` rows each; without splits
// equal ones for `size` ranks. Requires: check_splits (tensor_check.h).
OutBlocks out_blocks(const at::Tensor& tensor, const std::vector<int64_t>& splits,
                     int size);
InBlocks in_blocks(const at::Tensor& tensor, const std::vector<int64_t>& splits,
                   int size);

// What comes is written while what goes may still be read. So what goes and lies in the
// memory of `ins` is copied, into tensors that it appends to `held`. But what rank
// `own` has for itself may lie where it belongs: that is read before it is written.
void set_apart(OutBlocks& outs, const InBlocks& ins, int own,
               std::vector<at::Tensor>& held);

}  // namespace aikido::adapter
