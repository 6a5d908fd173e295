// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "base/core.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cstdio>

namespace aikido {
namespace {

// The beginning of what the kernel says in a file, as text; empty: nothing.
std::array<char, 128> read_start(const Fd& file) {
  std::array<char, 128> text{};
  if (::pread(file.get(), text.data(), text.size() - 1, 0) < 0) text[0] = '\0';
  return text;
}

}  // namespace

bool move_to_another_core() {
  return OtherCores().leave();
}

// The kernel moves a thread at once that may not run where it is.
bool OtherCores::leave() {
  if (!is_away_ && ::sched_getaffinity(0, sizeof all_, &all_) != 0) return false;
  const int here = ::sched_getcpu();
  if (here < 0) return false;
  cpu_set_t others = all_;
  CPU_CLR(here, &others);
  if (CPU_COUNT(&others) == 0) return false;
  if (::sched_setaffinity(0, sizeof others, &others) != 0) return false;
  others_ = others;
  is_away_ = true;
  return true;
}

void OtherCores::come_back() {
  if (!is_away_) return;
  is_away_ = false;
  cpu_set_t now;
  if (::sched_getaffinity(0, sizeof now, &now) == 0 && CPU_EQUAL(&now, &others_))
    ::sched_setaffinity(0, sizeof all_, &all_);
}

ReadyThreads::ReadyThreads()
    : own_(::open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC)),
      all_(::open("/proc/loadavg", O_RDONLY | O_CLOEXEC)) {}

// Nanoseconds on a core, and without one.
std::optional<Duration> ReadyThreads::waited() const {
  long long waited_ns = 0;
  if (std::sscanf(read_start(own_).data(), "%*u %lld", &waited_ns) != 1)
    return std::nullopt;
  return Duration(waited_ns);
}

// Three averages, and how many are ready of how many there are.
bool ReadyThreads::fit_cores() const {
  long num_ready = 0;
  if (std::sscanf(read_start(all_).data(), "%*s %*s %*s %ld/", &num_ready) != 1)
    return true;
  return num_ready <= ::sysconf(_SC_NPROCESSORS_ONLN);
}

}  // namespace aikido
