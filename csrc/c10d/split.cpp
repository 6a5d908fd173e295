// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
//
// Groups that are made from a group: a part of its ranks, more ranks than its own, or
// its ranks without some.

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>
#include <utility>

#include "c10d/aikido_backend.h"
#include "c10d/common/tensor_check.h"

namespace aikido::adapter {
namespace {

// Flag of torch.distributed: end the calls in progress first.
constexpr int kShrinkAbort = 1;

}  // namespace

// Torch may ask for the same child once per device. Each child has its own keys in the
// store, which `name` tells apart.
BackendPtr AikidoBackend::child(const StorePtr& store, const std::string& name,
                                int rank, int size, const OptionsPtr& opts) {
  calls_.check_process();
  Config config{group_.name + ":child", timeout(), group_.settings};
  if (opts) {
    if (!opts->group_name.empty()) config.group_name = opts->group_name;
    config.timeout = opts->timeout;
  }
  const int number = children_.next_number(name);
  auto made = c10::make_intrusive<AikidoBackend>(
      group_.engine, group_.services->callback_thread,
      c10::make_intrusive<::c10d::PrefixStore>(concat("aikido/", name, '/', number),
                                               store),
      rank, size, std::move(config));
  children_.add(made);
  return made;
}

BackendPtr AikidoBackend::split(const StorePtr& store, const std::vector<int>& ranks,
                                const OptionsPtr& opts) {
  for (const int r : ranks) check_rank({"split", getRank()}, "ranks", r, getSize());
  const auto self = std::find(ranks.begin(), ranks.end(), getRank());
  if (self == ranks.end()) return nullptr;
  return child(store, opts ? opts->group_name : std::string(),
               static_cast<int>(self - ranks.begin()), static_cast<int>(ranks.size()),
               opts);
}

BackendPtr AikidoBackend::merge(const StorePtr& store, const OptionsPtr& opts,
                                const int& rank, const int& size) {
  return child(store, opts ? opts->group_name : std::string(), rank, size, opts);
}

BackendPtr AikidoBackend::shrink(const std::vector<int64_t>& ranks_to_exclude,
                                 int flags, const OptionsPtr& opts) {
  const auto is_out = [&](int64_t r) {
    return std::find(ranks_to_exclude.begin(), ranks_to_exclude.end(), r) !=
           ranks_to_exclude.end();
  };
  std::vector<int> ranks;
  std::string name = "shrink";
  for (int r = 0; r < getSize(); ++r) {
    if (is_out(r)) continue;
    ranks.push_back(r);
    name += concat('/', r);
  }
  const auto self = std::find(ranks.begin(), ranks.end(), getRank());
  if (self == ranks.end()) {
    raise({Code::kInvalidArgument, concat("shrink on rank ", getRank(),
                                          ": it is one of the ranks to exclude; "
                                          "only those that stay call it")});
  }
  const StorePtr store = group_.present_store();
  if (!store) {
    raise(
        {Code::kUnsupported,
         concat("shrink on rank ", getRank(), ": group \"", group_.name,
                "\" has got its members by reconfigure, which need not share a store; "
                "call aikido_torch.reconfigure(...) with the handles of those that "
                "stay")});
  }
  if ((flags & kShrinkAbort) != 0) abort();
  return child(store, name, static_cast<int>(self - ranks.begin()),
               static_cast<int>(ranks.size()), opts);
}

}  // namespace aikido::adapter
