// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Weight of this rank's gradients in the present step of a registered model
// (aikido_torch/ddp/_step_weight.py). It is kept in C++, because the hook of a quiet
// step reads it without Python. For the thread that trains and the thread of its
// backward, which do not run at the same time.

#include <optional>

namespace aikido::bind {

class StepWeight final {
 public:
  // Weight of each bucket of the step. Empty: the means have no weights, because no
  // step has set one.
  [[nodiscard]] std::optional<double> value() const { return value_; }
  // Requires: collectives::check_weight(weight) is ok.
  void set(double weight) {
    value_ = weight;
    has_begun_ = false;
  }
  // The backward of the step starts its first bucket.
  void begin_step() { has_begun_ = true; }
  // All buckets of the step are started. The next step has the weight 1, unless it sets
  // another one.
  void end_step() {
    if (value_) value_ = 1.0;
    has_begun_ = false;
  }
  // This rank goes past the step without an own contribution. If the backward of the
  // step has thrown, its weight must not become that of the next step. A weight that is
  // set for the next step stays.
  void drop_step() {
    if (has_begun_) end_step();
  }

 private:
  std::optional<double> value_;
  bool has_begun_ = false;
};

}  // namespace aikido::bind
