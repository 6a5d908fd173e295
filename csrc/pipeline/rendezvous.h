// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Whether the ranks of a schedule come to the end of their lists if each send and
// receive waits in place for its other end. Pure; any thread.

#include "base/status.h"
#include "pipeline/schedule.h"

namespace aikido::pipeline {

// kInvalidArgument with a sentence that names ranks that wait for each other, or a
// message or step whose other end is missing. Requires: numbers are in range; each
// message is there at most once on each end.
Status check_rendezvous(const Schedule& schedule);

}  // namespace aikido::pipeline
