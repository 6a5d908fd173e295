// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Number of chunks of a transfer over several hops, where each hop sends a chunk while
// the next hop sends the previous chunk: the pipelining of transfers in Caramel (arXiv
// 2004.14020). Pure; any thread.

#include "base/status.h"
#include "cost/link_cost.h"

namespace aikido::cost {

struct Pipelining {
  int depth = 1;      // chunks
  double time_s = 0;  // of the whole transfer
};

// With k equal chunks over h hops: T(k) = (h + k - 1) (alpha + beta m / k), which is
// least near k = sqrt((h - 1) beta m / alpha) (the pipelined chain; Chan, Heimlich,
// Purkayastha and van de Geijn, "Collective communication: theory, practice, and
// experience", Concurrency and Computation 19(13), 2007). Returns the best integer k up
// to `most`; the smaller of two. kInvalidArgument: fewer than one hop or chunk, or a
// number that is negative or not finite.
Result<Pipelining> pipelining_of(double bytes, int hops, int most,
                                 const LinkCost& link);

}  // namespace aikido::cost
