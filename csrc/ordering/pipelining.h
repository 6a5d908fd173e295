// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Into how many chunks a transfer is cut that goes over several hops, so that each hop
// sends one while the next sends the one before: the pipelining of transfers in Caramel
// (arXiv 2004.14020). Pure; any thread.

#include "base/status.h"
#include "ordering/graph.h"

namespace aikido::ordering {

struct Pipelining {
  int depth = 1;      // chunks
  double time_s = 0;  // of the whole transfer
};

// With k equal chunks over h hops: T(k) = (h + k - 1) (alpha + beta m / k), which is
// least near k = sqrt((h - 1) beta m / alpha) (the pipelined chain; Chan, Heimlich,
// Purkayastha and van de Geijn, "Collective communication: theory, practice, and
// experience", Concurrency and Computation 19(13), 2007). The best whole k up to
// `most`; of two the smaller. kInvalidArgument with a sentence: fewer than one hop or
// chunk, or figures that are negative or no numbers.
Result<Pipelining> pipelining_of(double bytes, int hops, int most,
                                 const LinkCost& link);

}  // namespace aikido::ordering
