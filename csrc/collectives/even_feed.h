// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Several streams of bytes over links of their own that are to end together (our
// design). Each link takes what it can, and who shares an uplink seldom gets even parts
// of it: one stream would end early and another one late, alone. So pieces are handed
// out one by one, and no stream gets more than kLead pieces ahead of the slowest. Pure;
// one thread.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace aikido::collectives {

class EvenFeed {
 public:
  // What a link needs to stay busy while we are told that a piece has left.
  static constexpr size_t kLead = 3;

  struct Piece {
    int32_t stream;
    size_t begin, end;  // bytes
    friend bool operator==(const Piece&, const Piece&) = default;
  };

  // Requires: piece_bytes > 0.
  EvenFeed(int32_t num_streams, size_t piece_bytes)
      : piece_bytes_(piece_bytes), streams_(static_cast<size_t>(num_streams)) {}

  // A stream of `bytes` bytes begins, maybe again. One without bytes has one piece.
  void begin(int32_t stream, size_t bytes);
  // No more of it is handed out.
  void end(int32_t stream);
  // The next piece that may go: of the stream that is furthest behind. Empty: none
  // until one has left, or all have gone.
  std::optional<Piece> next();
  // A piece of it has left, in order.
  void on_left(int32_t stream);

 private:
  struct Stream {
    size_t num_pieces = 0;
    size_t bytes = 0;
    size_t handed = 0;  // pieces
    size_t left = 0;
  };
  Stream& at(int32_t stream) { return streams_[static_cast<size_t>(stream)]; }

  size_t piece_bytes_;
  std::vector<Stream> streams_;
};

}  // namespace aikido::collectives
