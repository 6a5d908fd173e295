// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Exception that carries a failed Status to Python, where it becomes one of the classes
// of aikido_torch.errors (bind/errors.cpp). In C++ it is torch's DistBackendError.

#include <c10/util/Exception.h>

#include <string>
#include <utility>

#include "base/status.h"

namespace aikido::adapter {

class Error final : public c10::DistBackendError {
 public:
  // `operation`: name as a PyTorch user calls it; empty: none. `seq`: its number in the
  // group; 0: none.
  explicit Error(Status status, std::string operation = {}, uint64_t seq = 0)
      : c10::DistBackendError(c10::SourceLocation{"aikido", "", 0}, status.message()),
        status_(std::move(status)),
        operation_(std::move(operation)),
        seq_(seq) {}
  const Status& status() const { return status_; }
  const std::string& operation() const { return operation_; }
  uint64_t seq() const { return seq_; }

 private:
  Status status_;
  std::string operation_;
  uint64_t seq_;
};

[[noreturn, gnu::cold]] inline void raise(Status status, std::string operation = {},
                                          uint64_t seq = 0) {
  throw Error(std::move(status), std::move(operation), seq);
}
inline void raise_if_failed(const Status& status) {
  if (status.has_failed()) raise(status);
}
template <class T>
T value_or_raise(Result<T> result) {
  raise_if_failed(result.status());
  return std::move(*result);
}

}  // namespace aikido::adapter
