// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// A large broadcast in a group of more than two. Receivers say that they have called;
// then the root hands out pieces, which their receivers pass on to each other
// (relay_feed.h). To a receiver that reads our memory, and to an only one that does
// not, all goes at once: there a piece from somebody else saves nothing. Strict.
//
// A piece names those that it is to be passed on to behind the call of its first frame:
// a bit for each rank (membership/view.h). Its receiver tells the root by a kData without
// payload how many bytes, of all pieces, have left again (`total_bytes`): behind its
// data, and before it leaves. The root is done when all have. So who waits for bytes
// waits for the root, and the root knows for whom.

#include <map>
#include <optional>
#include <vector>

#include "collectives/byte_ranges.h"
#include "collectives/operation.h"
#include "collectives/relay_feed.h"

namespace aikido::collectives {

class RelayedBroadcast final : public Operation {
 public:
  // Whether it is for this call in a group of `size`. The same on all members.
  static bool suits(const Call& call, int32_t size, size_t eager_bytes);

  RelayedBroadcast(OperationHost* host, Seq seq, Call call, Rank first_caller);

  Result<std::byte*> place(Rank from, const transport::FrameHeader& header,
                           std::span<const std::byte> rest) override;
  void arrived(Rank from, const transport::FrameHeader& header) override;
  std::vector<Rank> missing() const override;
  std::vector<Rank> suspects() const override;
  void probe() override;

 private:
  // What others have sent us.
  struct Source {
    RankSet pass_to;        // of the piece that comes
    bool is_piece = false;  // it is one: the root is to be told
    size_t end = 0;         // of its last frame that is here, in the tensor
  };
  // A frame of a piece that is on its way to others.
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
  // Of the root.
  void join(Rank rank);
  void hand_out();
  bool has_served_all() const;
  void on_told(Rank relay, size_t bytes);
  // Of the others.
  void pass_on(const Source& source, size_t begin, size_t end);
  void on_copy_sent(uint32_t token);
  void on_passed(size_t bytes);
  void finish_if_done();

  size_t num_copies_ = 1;  // of what is posted

  // At the root.
  size_t num_readers_ = 0;  // of its memory
  RankSet callers_;         // have called
  RankSet sent_;            // of those that get all at once
  RankSet far_;             // those that get pieces
  std::optional<RelayFeed> feed_;

  // At the others.
  std::vector<Source> sources_;  // by rank
  ByteRanges here_;
  size_t got_ = 0;                       // bytes that are here
  std::map<uint32_t, Passing> passing_;  // by number
  uint32_t next_number_ = 0;
  std::vector<int32_t> unsent_;  // copies, by the rank that they go to
  size_t passed_ = 0;            // bytes of all pieces
};

}  // namespace aikido::collectives
