// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// What becomes of the numbers of a call that is refused, or of calls that are no part
// of one. On the thread of the call.

#include "c10d/process_group.h"

namespace aikido::adapter {

// One try to make a call, from its checks to the moment when its data is on its way.
// Left by an exception, be it for an argument or for want of memory, it ends the
// batch of this thread, and the call has taken its numbers: the others hear why
// instead of waiting, and the numbers go on alike.
class AikidoBackend::Attempt : public CallSite {
 public:
  // It stands for `num_calls` collectives, none for a message.
  Attempt(AikidoBackend& backend, const char* name, size_t num_calls);
  ~Attempt();
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;

 private:
  AikidoBackend& backend_;
  const size_t num_calls_;
  const bool is_message_alone_;  // which has no number, and is in no batch
  const uint64_t numbers_before_;
  const int exceptions_before_;
};

inline AikidoBackend::Attempt AikidoBackend::collective(const char* call,
                                                        size_t num_calls) {
  return {*this, call, num_calls};
}
inline AikidoBackend::Attempt AikidoBackend::message(const char* call) {
  return {*this, call, 0};
}

// Collectives made meanwhile are beside the call that is being tried, as what ranks
// find out before their first one; unless one of them fails, and the call with it.
class CallsBeside {
 public:
  CallsBeside();
  ~CallsBeside();
  CallsBeside(const CallsBeside&) = delete;
  CallsBeside& operator=(const CallsBeside&) = delete;

 private:
  const uint64_t numbers_before_;
  const int exceptions_before_;
};

}  // namespace aikido::adapter
