// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "c10d/device/pending_copies.h"

namespace aikido::adapter {

PendingCopies::PendingCopies(Staged& staged) {
  if (staged.downs.empty()) return;
  downs_ = std::move(staged.downs);
  own_copies_ = std::move(staged.own_copies);
  hold_ = std::make_shared<collectives::Hold>();
  if (staged.on_result)
    parts_ = std::make_shared<collectives::Parts>(downs_.front().ready,
                                                  std::move(staged.on_result));
}

void PendingCopies::follow(Transfers& transfers,
                           const std::shared_ptr<engine::Communicator>& communicator,
                           TimePoint deadline) {
  for (size_t i = 0; i < downs_.size(); ++i) {
    CopyDown& down = downs_[i];
    if (i == 0) {
      transfers.watch(std::move(down.marks), down.site, deadline,
                      [communicator, hold = hold_,
                       own = std::move(own_copies_)](const Status& status) {
                        if (status.is_ok())
                          for (const OwnCopy& c : own) copy_block(c.from, c.to);
                        communicator->release(*hold, status);
                      });
      continue;
    }
    transfers.watch(
        std::move(down.marks), down.site, deadline,
        [communicator, parts = parts_, ready = down.ready](const Status& status) {
          communicator->post([parts, ready, status](engine::Group&) {
            if (status.is_ok()) {
              parts->advance(ready);
            } else {
              parts->fail(status);
            }
          });
        });
  }
}

}  // namespace aikido::adapter
