// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "straggler/skip_record.h"

#include <algorithm>

namespace aikido::straggler {

bool SkipRecord::is_behind(Seq seq) const {
  // A skip in another shard of `seq` itself is no news about the member's calls.
  const Seq skipped = last_skipped_ == seq ? skipped_before_ : last_skipped_;
  return called_ < std::min(skipped, seq) && called_ == called_when_skipped_;
}

void SkipRecord::forgive(Seq seq) {
  forgiven_ = seq;
  late_ = late_before_ = 0;
}

void SkipRecord::take_back_last_late() {
  const Seq seq = news_;
  news_ = Seq(0);
  if (counted_ > seq) late_before_ -= std::min(late_before_, 1u);
  late_ -= std::min(late_, 1u);
}

void SkipRecord::note_little(Seq seq) {
  if (counted_ < seq) return;
  const uint64_t since = counted_.value - seq.value;
  late_ = static_cast<uint32_t>(std::min<uint64_t>(late_, since));
  late_before_ = std::min(late_before_, late_);
}

void SkipRecord::note_late(Seq seq) {
  if (seq <= last_skipped_) return;
  skipped_before_ = last_skipped_;
  last_skipped_ = seq;
  called_when_skipped_ = called_;
}

void SkipRecord::note_skipped(Seq seq, bool is_lost, bool is_little, bool is_rest) {
  healthy_ = 0;
  const uint32_t news = seq > forgiven_ && !is_little && !is_rest ? 1 : 0;
  if (news > 0) news_ = std::max(news_, seq);
  const uint32_t lost = is_lost ? 1 : 0;
  note_late(seq);
  if (seq > counted_) {
    counted_ = seq;
    consecutive_before_ = consecutive_;
    consecutive_ = is_lost ? consecutive_ + 1 : 0;
    late_before_ = is_little ? 0 : late_;
    late_ = late_before_ + news;
  } else if (seq == counted_) {
    if (is_lost) consecutive_ = consecutive_before_ + 1;
    late_ = late_before_ + news;
  } else {
    consecutive_ += lost;
    consecutive_before_ += lost;
    late_ += news;
    late_before_ += news;
  }
}

void SkipRecord::note_absent(Seq seq) {
  if (seq > counted_) {
    counted_ = seq;
    consecutive_before_ = consecutive_;
    ++consecutive_;
    late_before_ = late_;
  } else if (seq == counted_) {
    consecutive_ = consecutive_before_ + 1;
  } else {
    ++consecutive_;
    ++consecutive_before_;
  }
}

void SkipRecord::note_included(Seq seq) {
  if (seq <= counted_) return;
  ++healthy_;
  counted_ = seq;
  consecutive_before_ = consecutive_;
  consecutive_ = 0;
  late_before_ = late_;
  late_ = 0;
}

}  // namespace aikido::straggler
