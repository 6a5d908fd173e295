// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/frame_admission.h"

#include <new>

#include "engine/failures.h"

namespace aikido::engine {

using collectives::DecodedCall;

Result<std::optional<DecodedCall>> read_call(std::span<const std::byte> extension,
                                             int32_t size, uint64_t most_bytes) {
  if (extension.empty()) return std::optional<DecodedCall>();
  auto decoded = collectives::decode_call(extension);
  if (!decoded) return decoded.status();
  // The call comes from the peer, so an invalid one is a protocol error of the peer.
  const Status valid = collectives::validate(decoded->call, size);
  if (valid.has_failed()) return Status(Code::kProtocol, valid.message());
  if (decoded->call.bytes() > most_bytes) {
    return Status(Code::kProtocol,
                  concat(describe(decoded->call), " has ", decoded->call.bytes(),
                         " bytes, more than ", most_bytes));
  }
  return std::optional(*decoded);
}

Result<std::byte*> place_frame(collectives::Operation& operation, Rank from,
                               const transport::FrameHeader& header,
                               std::span<const std::byte> rest,
                               const std::string& group, Rank self) {
  try {
    return operation.place(from, header, rest);
    // The sizes come from other members, so their allocation may fail.
  } catch (const std::bad_alloc&) {
    return no_memory(header.seq, group, operation.call(), self);
  }
}

Status start_call(collectives::Operation& operation, collectives::LocalCall local,
                  const std::string& group, Rank self) {
  try {
    return operation.start(std::move(local));
  } catch (const std::bad_alloc&) {
    return no_memory(operation.seq().value, group, operation.call(), self);
  }
}

Status too_far_ahead(uint64_t seq, uint64_t called) {
  return {Code::kProtocol,
          concat("a frame of collective ", seq, ", ", called, " are called here")};
}

}  // namespace aikido::engine
