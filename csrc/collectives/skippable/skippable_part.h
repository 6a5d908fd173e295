// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Base class of the parts of a skippable operation. A part is a member of its operation
// and lives as long. A part uses the host, the call and the local call of its operation
// by the same names, and posts messages of the operation. Progress thread.

#include <utility>

#include "collectives/skippable_operation.h"

namespace aikido::collectives {

class SkippablePart {
 public:
  SkippablePart(const SkippablePart&) = delete;
  SkippablePart& operator=(const SkippablePart&) = delete;

 protected:
  // `operation` may be under construction; its members are only stored.
  explicit SkippablePart(SkippableOperation& operation)
      : host_(operation.host_),
        view_host_(operation.view_host_),
        seq_(operation.seq_),
        call_(operation.call_),
        local_(operation.local_),
        operation_(operation) {}
  ~SkippablePart() = default;

  bool is_started() const { return operation_.is_started(); }
  bool is_over() const { return operation_.is_over(); }
  bool has_failed() const { return operation_.has_failed(); }
  // As Operation::post() and misfit().
  template <class... Args>
  transport::MessageId post(Args&&... args) {
    return operation_.post(std::forward<Args>(args)...);
  }
  Status misfit(Rank from, uint64_t bytes, size_t expected) const {
    return operation_.misfit(from, bytes, expected);
  }

  OperationHost* const host_;
  ViewHost* const view_host_;
  const Seq seq_;
  const Call& call_;
  const LocalCall& local_;

 private:
  SkippableOperation& operation_;
};

}  // namespace aikido::collectives
