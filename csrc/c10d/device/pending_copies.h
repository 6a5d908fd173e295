// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Hold of a call with data that is still being copied to the host. The call enters the
// group when the copies are done. Unused by other calls. Caller's thread.

#include <memory>
#include <utility>
#include <vector>

#include "c10d/device/staging.h"
#include "engine/communicator.h"

namespace aikido::adapter {

class PendingCopies {
 public:
  // Takes the pending copies out of `staged`.
  explicit PendingCopies(Staged& staged);

  // For the call. Null if its data is complete.
  const std::shared_ptr<collectives::Hold>& hold() const { return hold_; }
  const std::shared_ptr<collectives::Parts>& parts() const { return parts_; }

  // Requires: the call was made through `communicator`, and the copied memory lives
  // until the end. Fails the call if a copy fails or is not done at `deadline`.
  void follow(Transfers& transfers,
              const std::shared_ptr<engine::Communicator>& communicator,
              TimePoint deadline);

 private:
  std::shared_ptr<collectives::Hold> hold_;
  std::shared_ptr<collectives::Parts> parts_;
  std::vector<CopyDown> downs_;
  std::vector<OwnCopy> own_copies_;
};

}  // namespace aikido::adapter
