// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/exchange_hello.h"

#include <algorithm>
#include <map>

#include "base/text.h"
#include "base/wire.h"

namespace aikido::engine {
namespace {

// FNV-1a of the hosts, numbered in the order of their first ranks. So equal divisions
// of the ranks have equal fingerprints.
uint64_t fingerprint_of(std::span<const int32_t> hosts, int32_t num_ranks) {
  constexpr uint64_t kBasis = 14695981039346656037u, kPrime = 1099511628211u;
  std::map<int32_t, uint64_t> numbers;
  uint64_t hash = kBasis;
  for (size_t rank = 0; rank < static_cast<size_t>(num_ranks); ++rank) {
    const int32_t host = hosts.empty() ? 0 : hosts[rank];
    hash = (hash ^ numbers.try_emplace(host, numbers.size()).first->second) * kPrime;
  }
  return hash;
}

}  // namespace

ExchangeHello ExchangeHello::of(std::span<const int32_t> hosts, int32_t num_ranks,
                                int32_t num_helpers,
                                const reassign::ReassignOptions& options) {
  return {num_helpers, fingerprint_of(hosts, num_ranks), options.behind,
          options.answer_timeout.count(), options.absent_patience, num_ranks};
}

std::vector<std::byte> ExchangeHello::encode() const {
  std::vector<std::byte> out;
  append_value(out, uint32_t{0});
  append_value(out, num_helpers);
  append_value(out, hosts);
  append_value(out, behind);
  append_value(out, answer_timeout_ns);
  append_value(out, absent_patience);
  append_value(out, num_ranks);
  return out;
}

std::string ExchangeHello::difference(const ExchangeHello& other) const {
  if (num_ranks != other.num_ranks)
    return concat("the number of ranks is ", num_ranks, " and there ", other.num_ranks);
  if (num_helpers != other.num_helpers)
    return concat("helpers is ", num_helpers, " and there ", other.num_helpers);
  if (hosts != other.hosts) return "hosts divides the ranks differently";
  if (behind != other.behind)
    return concat("behind is ", behind, " and there ", other.behind);
  if (answer_timeout_ns != other.answer_timeout_ns)
    return concat("answer_timeout is ", answer_timeout_ns, " ns and there ",
                  other.answer_timeout_ns, " ns");
  if (absent_patience != other.absent_patience)
    return concat("absent_patience is ", absent_patience, " and there ",
                  other.absent_patience);
  return {};
}

bool is_hello(std::span<const std::byte> bytes) {
  return !bytes.empty() && bytes[0] == std::byte{0};
}

Result<ExchangeHello> decode_hello(std::span<const std::byte> bytes) {
  const size_t size = bytes.size();
  WireReader reader{bytes};
  reader.take<uint32_t>();
  ExchangeHello hello;
  hello.num_helpers = reader.take<int32_t>();
  hello.hosts = reader.take<uint64_t>();
  hello.behind = reader.take<double>();
  hello.answer_timeout_ns = reader.take<int64_t>();
  hello.absent_patience = reader.take<double>();
  hello.num_ranks = reader.take<int32_t>();
  if (!reader.ok || !bytes.empty())
    return Status(Code::kProtocol,
                  concat("the options of an exchange of items have ", size,
                         " bytes; check that all ranks run the same version"));
  return hello;
}

}  // namespace aikido::engine
