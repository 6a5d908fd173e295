// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Expected failures as values. A Status has a code that tells the caller's next action,
// a sentence, and the culprit if it is known. Defects of aikido are AIKIDO_CHECK
// (check.h) instead. Lateness is neither: see collectives/outcome.h.

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/types.h"

namespace aikido {

enum class Code : uint8_t {
  kOk,
  kRetryLater,   // nothing is broken: try again (no quorum yet, queue full)
  kPeerLost,     // a member died or its connection broke: rebuild the group without it
  kTimedOut,     // the deadline of the call passed: find out who is missing
  kAborted,      // someone, maybe this process, gave the operation or the group up
  kUnsupported,  // this build or backend cannot do it: use another call
  kInvalidArgument,  // the call itself is wrong: repair the caller
  kProtocol,  // a peer speaks another version or nonsense: check the installation
  kInternal,  // a defect of aikido: report it
};

// "peer_lost" and the like, as logs and the trace print it.
std::string_view name_of(Code code);

// Has no truth value: `if (failure)` would mean the opposite of its name.
class [[nodiscard]] Status {
 public:
  Status() = default;
  [[gnu::cold]] Status(Code code, std::string message, Rank culprit = kNoRank)
      : code_(code), message_(std::move(message)), culprit_(culprit) {}

  static Status ok() { return {}; }

  bool is_ok() const { return code_ == Code::kOk; }
  bool has_failed() const { return code_ != Code::kOk; }
  Code code() const { return code_; }
  // One sentence: the event, the member, both values, and a remedy. Empty when ok.
  const std::string& message() const { return message_; }
  // The member that caused it; kNoRank if no single member did.
  Rank culprit() const { return culprit_; }

  // The same failure seen from one level up: "context: message".
  Status with_context(std::string_view context) const;

 private:
  Code code_ = Code::kOk;
  std::string message_;
  Rank culprit_ = kNoRank;
};

// Status of a wrong argument.
[[gnu::cold]] inline Status invalid(std::string message) {
  return {Code::kInvalidArgument, std::move(message)};
}

// A value, or the Status that says why there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}  // NOLINT: implicit on purpose
  [[gnu::cold]] Result(Status status)            // NOLINT: implicit on purpose
      : status_(std::move(status)) {
    AIKIDO_CHECK(!status_.is_ok(), "a Result without a value needs a failure");
  }

  bool is_ok() const { return value_.has_value(); }
  bool has_failed() const { return !is_ok(); }
  // True if there is a value, as of std::optional.
  explicit operator bool() const { return is_ok(); }
  const Status& status() const { return status_; }
  // Requires is_ok().
  T& value() {
    AIKIDO_CHECK(is_ok(), "value() of a failed Result: ", status_.message());
    return *value_;
  }
  T& operator*() { return value(); }
  T* operator->() { return &value(); }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace aikido

// Hands a failed Status to the caller.
#define AIKIDO_TRY(expression)                                             \
  do {                                                                     \
    if (auto aikido_try_status = (expression); !aikido_try_status.is_ok()) \
      return aikido_try_status;                                            \
  } while (false)
