// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// A failed Status on its way to Python: caught there as one of the classes of
// aikido_torch.errors (bind/errors.cpp), elsewhere as torch's own DistBackendError.

#include <c10/util/Exception.h>

#include "base/status.h"

namespace aikido::adapter {

class Error final : public c10::DistBackendError {
 public:
  explicit Error(Status status)
      : c10::DistBackendError(c10::SourceLocation{"aikido", "", 0}, status.message()),
        status_(std::move(status)) {}
  const Status& status() const { return status_; }

 private:
  Status status_;
};

[[noreturn]] inline void raise(Status status) {
  throw Error(std::move(status));
}
inline void raise_if_failed(const Status& status) {
  if (!status) raise(status);
}

}  // namespace aikido::adapter
