// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// A call whose data is on its way to the host: what holds it in the group, and lets it
// go when the copies are through. Nothing for other calls. On the caller's thread.

#include <memory>
#include <utility>
#include <vector>

#include "c10d/staging.h"
#include "engine/communicator.h"

namespace aikido::adapter {

class Departure {
 public:
  // Takes what is on its way out of `staged`.
  explicit Departure(Staged& staged);

  // For the call; null where its data is there.
  const std::shared_ptr<collectives::Hold>& hold() const { return hold_; }
  const std::shared_ptr<collectives::Parts>& parts() const { return parts_; }

  // Requires: the call was made, through `communicator`. The memory that is copied from
  // and to lives until then. Fails it with a copy that fails, or is not through at
  // `deadline`.
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
