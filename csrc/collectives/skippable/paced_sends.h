// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Paced sends of several byte streams, each over its own link, that are to end together
// (our design). Each link takes as many bytes as it can, and links that share an uplink
// seldom get even parts of it. Without pacing one stream would end early and another
// one late, alone. So pieces are handed out one by one, and no stream gets more than
// kLead pieces ahead of the slowest stream. Pure; one thread.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace aikido::collectives {

class PacedSends {
 public:
  // Pieces that keep a link busy until the news that a piece has left.
  static constexpr size_t kLead = 3;

  struct Piece {
    int32_t stream;
    size_t begin, end;  // bytes
    friend bool operator==(const Piece&, const Piece&) = default;
  };

  // Requires: piece_bytes > 0.
  PacedSends(int32_t num_streams, size_t piece_bytes)
      : piece_bytes_(piece_bytes), streams_(static_cast<size_t>(num_streams)) {}

  // A stream of `bytes` bytes begins, maybe again. A stream without bytes has one
  // piece.
  void begin(int32_t stream, size_t bytes);
  // No more pieces of the stream are handed out.
  void end(int32_t stream);
  // Next piece to send, from the stream that is furthest behind. nullopt: no piece
  // until one has left, or all are sent.
  std::optional<Piece> next();
  // A piece of the stream has left, in order.
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
