// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Check that the ranks of a schedule finish even if each send and receive waits in
// place for its other end. Pure; any thread.

#include "base/status.h"
#include "pipeline/schedule.h"

namespace aikido::pipeline {

// kInvalidArgument names ranks that wait for each other, or a message or step without
// its other end. Requires: numbers are in range; each message occurs at most once at
// each end.
Status check_rendezvous(const Schedule& schedule);

}  // namespace aikido::pipeline
