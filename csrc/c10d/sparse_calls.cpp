// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
//
// All_reduce of sparse (COO) tensors. All ranks exchange indices and values and add
// them up in rank order, so all get the same bits.

#include <cstring>
#include <utility>

#include "c10d/aikido_backend.h"
#include "c10d/common/call_of.h"
#include "c10d/common/error.h"
#include "c10d/common/premultiplied.h"
#include "c10d/device/staging.h"

namespace aikido::adapter {

using ::c10d::OpType;
using collectives::Call;
using collectives::CallKind;
using collectives::LocalCall;

namespace {

// Header of a message; the indices and then the values follow.
struct Head {
  int64_t count = -1;  // number of entries
  int64_t sparse_dim = -1;
};
constexpr size_t kHeadBytes = sizeof(Head);
constexpr size_t kMaxBytes = size_t{1} << 62;

struct SparseLayout {
  at::IntArrayRef sizes;
  int64_t sparse_dim;
  at::ScalarType dtype;
  std::vector<int64_t> entry;  // shape of one value

  size_t index_bytes() const {
    return static_cast<size_t>(sparse_dim) * sizeof(int64_t);
  }
  size_t value_bytes() const {
    size_t bytes = c10::elementSize(dtype);
    for (const int64_t n : entry) bytes *= static_cast<size_t>(n);
    return bytes;
  }
  // Coalesced tensors have each entry at most once. For a shape that no memory can hold
  // in full: the largest possible message.
  size_t max_bytes() const {
    size_t bytes = index_bytes() + value_bytes();
    for (int64_t d = 0; d < sparse_dim; ++d) {
      const auto size = static_cast<size_t>(sizes[static_cast<size_t>(d)]);
      if (size > 0 && bytes > kMaxBytes / size) return kMaxBytes;
      bytes *= size;
    }
    return kHeadBytes + bytes;
  }
};

SparseLayout layout_of(const at::Tensor& t) {
  SparseLayout layout{t.sizes(), t.sparse_dim(), t.scalar_type(), {}};
  for (int64_t d = t.sparse_dim(); d < t.dim(); ++d) layout.entry.push_back(t.size(d));
  return layout;
}

at::Tensor pack(const at::Tensor& coalesced) {
  const at::Tensor indices = coalesced.indices().contiguous();
  const at::Tensor values =
      coalesced.values().resolve_conj().resolve_neg().contiguous();
  const Head head{coalesced._nnz(), coalesced.sparse_dim()};
  at::Tensor out =
      at::empty({static_cast<int64_t>(kHeadBytes + indices.nbytes() + values.nbytes())},
                at::kByte);
  std::byte* to = mutable_bytes_of(out);
  std::memcpy(to, &head, kHeadBytes);
  if (head.count > 0) {
    std::memcpy(to + kHeadBytes, bytes_of(indices), indices.nbytes());
    std::memcpy(to + kHeadBytes + indices.nbytes(), bytes_of(values), values.nbytes());
  }
  return out;
}

// Unpacks the message of a rank, in memory that outlives the tensor. The bytes come
// from a peer, so they are checked.
at::Tensor unpack(std::byte* bytes, size_t size, const SparseLayout& layout, int rank) {
  Head head;
  if (size >= kHeadBytes) std::memcpy(&head, bytes, kHeadBytes);
  if (head.sparse_dim != layout.sparse_dim) {
    raise({Code::kInvalidArgument,
           concat("sparse all_reduce: the tensor of rank ", rank, " has ",
                  head.sparse_dim, " sparse dimensions and ours has ",
                  layout.sparse_dim, "; use the same on every rank"),
           Rank(rank)});
  }
  const size_t entry_bytes = layout.index_bytes() + layout.value_bytes();
  if (head.count < 0 || static_cast<size_t>(head.count) > size ||
      size != kHeadBytes + static_cast<size_t>(head.count) * entry_bytes) {
    raise({Code::kProtocol,
           concat("sparse all_reduce: rank ", rank, " has sent ", size,
                  " bytes, which are not ", head.count, " entries of ", entry_bytes,
                  " bytes"),
           Rank(rank)});
  }
  std::vector<int64_t> shape{head.count};
  shape.insert(shape.end(), layout.entry.begin(), layout.entry.end());
  std::byte* at = bytes + kHeadBytes;
  const at::Tensor indices =
      at::from_blob(at, {layout.sparse_dim, head.count}, at::kLong).clone();
  const at::Tensor values = at::empty(shape, at::TensorOptions().dtype(layout.dtype));
  if (values.nbytes() > 0) {
    std::memcpy(mutable_bytes_of(values), at + indices.nbytes(), values.nbytes());
  }
  // Torch itself checks indices only if its user has asked for that.
  at::_validate_sparse_coo_tensor_args(indices, values, layout.sizes);
  return at::sparse_coo_tensor(indices, values, layout.sizes,
                               at::TensorOptions().dtype(layout.dtype));
}

}  // namespace

WorkPtr AikidoBackend::allreduce_sparse(Tensors& tensors,
                                        const ::c10d::AllreduceOptions& opts) {
  const CallScope site = calls_.collective("all_reduce");
  check_sparse(site, "tensor", tensors);
  const at::Tensor tensor = tensors[0];
  Call call = call_of(CallKind::kSparseAllreduce, site, tensor, opts.reduceOp);
  check_sum(site, call.op, "a sparse tensor");
  call.count = 0;  // the number of entries may differ; shapes are compared
  check_call(site, call, getSize());
  if (!tensor.device().is_cpu()) check_not_capturing(site, tensor.device());
  const at::Tensor own = premultiplied(opts.reduceOp, tensor.cpu().coalesce());
  const at::Tensor packed = pack(own);

  using Blocks = std::vector<std::vector<std::byte>>;
  const auto blocks = std::make_shared<Blocks>(static_cast<size_t>(getSize()));
  const size_t max_bytes = layout_of(own).max_bytes();
  LocalCall local = calls_.local_call();
  for (int r = 0; r < getSize(); ++r) {
    if (r == getRank()) continue;
    local.out_blocks.push_back({Rank(r), bytes_of(packed), packed.nbytes()});
    local.in_blocks.push_back({Rank(r), nullptr, max_bytes});
  }
  local.allocate = [blocks](Rank from, size_t bytes) {
    auto& block = (*blocks)[static_cast<size_t>(from.value)];
    block.resize(bytes);
    return block.data();
  };
  const int divisor = call.op == ReduceOp::kAvg ? getSize() : 1;
  const bool is_whole = !is_floating(call.dtype);
  auto finish = [blocks, own, tensor, divisor, is_whole, rank = getRank()] {
    const SparseLayout layout = layout_of(own);
    at::Tensor sum;
    for (size_t r = 0; r < blocks->size(); ++r) {
      auto& block = (*blocks)[r];
      const int from = static_cast<int>(r);
      const at::Tensor part =
          from == rank ? own : unpack(block.data(), block.size(), layout, from);
      sum = sum.defined() ? at::add(sum, part).coalesce() : part.coalesce();
    }
    if (divisor > 1 && is_whole)
      sum = at::div(sum, divisor, "trunc");
    else if (divisor > 1)
      sum = at::mul(sum, 1.0 / divisor);
    tensor.copy_(sum);
  };
  return calls_.submit(site, std::move(call),
                       {OpType::_ALLREDUCE_SPARSE, "aikido:sparse_all_reduce"},
                       std::move(local), {tensor},
                       {{tensor}, {}, {packed}, std::move(finish)}, opts.timeout);
}

}  // namespace aikido::adapter
