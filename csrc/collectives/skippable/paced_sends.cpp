// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "collectives/skippable/paced_sends.h"

#include <algorithm>
#include <limits>

namespace aikido::collectives {

void PacedSends::begin(int32_t stream, size_t bytes) {
  const size_t num_pieces = (bytes + piece_bytes_ - 1) / piece_bytes_;
  at(stream) = {std::max<size_t>(1, num_pieces), bytes, 0, 0};
}

void PacedSends::end(int32_t stream) {
  at(stream) = {};
}

std::optional<PacedSends::Piece> PacedSends::next() {
  size_t slowest = std::numeric_limits<size_t>::max();
  Stream* next = nullptr;
  for (Stream& s : streams_) {
    if (s.left < s.num_pieces) slowest = std::min(slowest, s.left);
    // Streams that have handed out the fewest pieces come first, so all streams advance
    // evenly.
    if (s.handed < s.num_pieces && (next == nullptr || s.handed < next->handed))
      next = &s;
  }
  if (next == nullptr || next->handed >= slowest + kLead) return std::nullopt;
  const size_t begin = next->handed++ * piece_bytes_;
  return Piece{static_cast<int32_t>(next - streams_.data()), begin,
               std::min(begin + piece_bytes_, next->bytes)};
}

void PacedSends::on_left(int32_t stream) {
  Stream& s = at(stream);
  // A cancelled piece leaves too. It may belong to an earlier begin(), so the count is
  // limited.
  s.left = std::min(s.left + 1, s.handed);
}

}  // namespace aikido::collectives
