// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Large broadcast in a group of more than two members. Receivers announce their calls.
// Then the root hands out pieces, and their receivers pass the pieces on to each other
// (relayed_sends.h). Two kinds of receivers get everything at once: a receiver that
// reads the root's memory, and an only receiver that does not. Relays save nothing
// there. Strict.
//
// A piece names the members to pass it on to, behind the call of its first frame: one
// bit for each rank (membership/view.h). Its receiver reports to the root, by a kData
// without payload, how many bytes of all pieces have left again (`total_bytes`). It
// does so behind its data, and before it leaves. The root is done when everything has
// left. So a member that waits for bytes waits for the root, and the root knows the
// cause.

#include <map>
#include <optional>
#include <vector>

#include "collectives/operation.h"
#include "collectives/strict/byte_ranges.h"
#include "collectives/strict/relayed_sends.h"

namespace aikido::collectives {

class ScatterRelayBroadcast final : public Operation {
 public:
  // True if this class serves the call in a group of `size`. Equal on all members.
  static bool suits(const Call& call, int32_t size, size_t eager_bytes);

  ScatterRelayBroadcast(OperationHost* host, Seq seq, Call call, Rank first_caller);

  Result<std::byte*> place(Rank from, const transport::FrameHeader& header,
                           std::span<const std::byte> rest) override;
  void arrived(Rank from, const transport::FrameHeader& header) override;
  std::vector<Rank> missing() const override;
  std::vector<Rank> suspects() const override;
  void probe() override;

 private:
  // Bytes that another member sends us.
  struct IncomingData {
    RankSet pass_to;        // of the arriving piece
    bool is_piece = false;  // true: passing it on is reported to the root
    size_t end = 0;         // end of its last received frame in the tensor
  };
  // A frame of a piece that is being passed on.
  struct Passing {
    size_t bytes = 0;
    int32_t copies = 0;
  };

  Status on_start() override;
  void on_message_sent(uint32_t token) override;
  size_t num_receivers(transport::FrameKind) const override { return num_copies_; }

  bool is_root() const { return host_->self() == call_.root; }
  const std::byte* data() const;
  Status nonsense(Rank from, const char* what) const;
  // At the root.
  void join(Rank rank);
  void hand_out();
  bool has_served_all() const;
  void on_told(Rank relay, size_t bytes);
  // At the receivers.
  void pass_on(const IncomingData& source, size_t begin, size_t end);
  void on_copy_sent(uint32_t token);
  void on_passed(size_t bytes);
  void finish_if_done();

  size_t num_copies_ = 1;  // of the posted message

  // At the root.
  size_t num_readers_ = 0;  // receivers that read its memory
  RankSet callers_;         // have called
  RankSet sent_;            // receivers that have been sent everything at once
  RankSet far_;             // receivers that get pieces
  std::optional<RelayedSends> sends_;

  // At the receivers.
  std::vector<IncomingData> sources_;  // by rank
  ByteRanges here_;
  size_t got_ = 0;                       // received bytes
  std::map<uint32_t, Passing> passing_;  // by number
  uint32_t next_number_ = 0;
  std::vector<int32_t> unsent_;  // unsent copies, by their receivers' ranks
  size_t passed_ = 0;            // bytes of all pieces
};

}  // namespace aikido::collectives
