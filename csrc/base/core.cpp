// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "base/core.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cstdio>

namespace aikido {
namespace {

// The beginning of a file of the kernel, as text; empty: the file is empty.
std::array<char, 128> read_start(const Fd& file) {
  std::array<char, 128> text{};
  if (::pread(file.get(), text.data(), text.size() - 1, 0) < 0) text[0] = '\0';
  return text;
}

bool get_cores(cpu_set_t& cores) {
  return ::sched_getaffinity(0, sizeof cores, &cores) == 0;
}

bool set_cores(const cpu_set_t& cores) {
  return ::sched_setaffinity(0, sizeof cores, &cores) == 0;
}

}  // namespace

bool move_to_another_core() {
  return OtherCores().leave();
}

// The kernel moves a thread at once that may not run where it is.
bool OtherCores::leave() {
  if (is_away_ && !is_as_left()) is_away_ = false;
  if (!is_away_ && !get_cores(all_)) return false;
  const int here = ::sched_getcpu();
  if (here < 0) return false;
  cpu_set_t others = all_;
  CPU_CLR(here, &others);
  if (CPU_COUNT(&others) == 0 || !set_cores(others)) return false;
  others_ = others;
  is_away_ = true;
  return true;
}

void OtherCores::come_back() {
  if (is_away_ && is_as_left()) set_cores(all_);
  is_away_ = false;
}

// True if no other code has changed the affinity of the thread. Cores may have been
// removed from the machine or its cpuset since; then setting the same affinity again
// gives the present one.
bool OtherCores::is_as_left() const {
  cpu_set_t now, again;
  if (!get_cores(now)) return false;
  if (CPU_EQUAL(&now, &others_)) return true;
  if (!set_cores(others_)) return false;
  if (get_cores(again) && CPU_EQUAL(&again, &now)) return true;
  set_cores(now);
  return false;
}

ReadyThreads::ReadyThreads()
    : own_(::open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC)),
      all_(::open("/proc/loadavg", O_RDONLY | O_CLOEXEC)) {
  cpu_set_t cores;
  const long num_cores = ::sysconf(_SC_NPROCESSORS_ONLN);
  if (get_cores(cores) && CPU_COUNT(&cores) >= num_cores) num_cores_ = num_cores;
}

// Nanoseconds on a core, and without one, and how often on one: never where nothing is
// counted.
std::optional<Duration> ReadyThreads::waited() const {
  long long waited_ns = 0, num_runs = 0;
  const auto text = read_start(own_);
  if (std::sscanf(text.data(), "%*u %lld %lld", &waited_ns, &num_runs) != 2 ||
      num_runs == 0)
    return std::nullopt;
  return Duration(waited_ns);
}

// Three averages, and how many are ready of how many there are.
bool ReadyThreads::fit_cores() const {
  if (num_cores_ == 0) return false;
  long num_ready = 0;
  const auto text = read_start(all_);
  return std::sscanf(text.data(), "%*s %*s %*s %ld/", &num_ready) == 1 &&
         num_ready <= num_cores_;
}

}  // namespace aikido
