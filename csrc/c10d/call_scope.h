// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Scope guard of one try to make a call, and a guard for calls that are not part of it.
// The guards account for the sequence numbers of refused calls. Calling thread.

#include <cstddef>
#include <cstdint>

#include "c10d/common/tensor_check.h"

namespace aikido::adapter {

class CallPath;

// Scope of one try to make a call, from its checks until the engine has its data. If an
// exception leaves the scope, for a bad argument or for lack of memory, the batch of
// this thread ends. The call still takes its sequence numbers. So the other ranks get
// the reason instead of waiting, and the numbers stay equal on all ranks.
class CallScope : public CallSite {
 public:
  // `num_calls`: number of collectives in the call; 0 for a message.
  CallScope(CallPath& path, const char* name, size_t num_calls);
  ~CallScope();
  CallScope(const CallScope&) = delete;
  CallScope& operator=(const CallScope&) = delete;

 private:
  CallPath& path_;
  const size_t num_calls_;
  const bool is_message_alone_;  // a message outside of a batch, which takes no number
  const uint64_t numbers_before_;
  const int exceptions_before_;
};

// Guard for collectives that are made during another call but do not belong to it, such
// as agreements of the ranks before their first call. If one of these fails, the call
// fails too.
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
