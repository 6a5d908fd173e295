// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/gong.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include "base/check.h"
#include "base/status.h"

namespace aikido::transport {

Gong::Gong() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  AIKIDO_CHECK(fd_.is_open(), describe_errno(errno),
               "; is the limit of open files (ulimit -n) reached?");
}

void Gong::remove(Sleeper* sleeper) {
  std::erase(all_, sleeper);
  if (std::erase(due_, sleeper) > 0) sleeper->ring();
}

void Gong::strike() {
  if (due_.empty()) return;
  if (due_.size() == 1 || !strike_for_all())
    for (Sleeper* sleeper : due_) sleeper->ring();
  due_.clear();
}

bool Gong::strike_for_all() {
  const auto hears = [](const Sleeper* s) { return s->hears_gong(); };
  const auto in_vain = [](const Sleeper* s) { return s->hears_gong() && s->sleeps(); };
  if (!std::all_of(due_.begin(), due_.end(), hears)) return false;
  if (std::any_of(all_.begin(), all_.end(), in_vain)) return false;
  const uint64_t one = 1;
  return ::write(fd_.get(), &one, sizeof one) == sizeof one;
}

}  // namespace aikido::transport
