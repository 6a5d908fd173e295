// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "base/status.h"

namespace aikido {

std::string_view name_of(Code code) {
  switch (code) {
    case Code::kOk:
      return "ok";
    case Code::kRetryLater:
      return "retry_later";
    case Code::kPeerLost:
      return "peer_lost";
    case Code::kTimedOut:
      return "timed_out";
    case Code::kAborted:
      return "aborted";
    case Code::kUnsupported:
      return "unsupported";
    case Code::kInvalidArgument:
      return "invalid_argument";
    case Code::kProtocol:
      return "protocol";
    case Code::kInternal:
      return "internal";
  }
  return "unknown";
}

Status Status::with_context(std::string_view context) const {
  if (is_ok()) return *this;
  return {code_, std::string(context) + ": " + message_, culprit_};
}

}  // namespace aikido
