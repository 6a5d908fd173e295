// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/failures.h"

#include "harness/catch.h"

using namespace aikido;
using namespace aikido::engine;
using std::chrono::milliseconds;

TEST_CASE(
    "an error names a member that is lost, has left or is silent, with the reason") {
  const Status lost =
      lost_member(Rank(2), "g", Status(Code::kProtocol, "it speaks nonsense"));
  CHECK(lost.code() == Code::kProtocol);
  CHECK(lost.culprit() == Rank(2));
  CHECK(
      lost.message() ==
      "rank 2 is lost to group \"g\": it speaks nonsense; look at its log, then go on "
      "without it: aikido_torch.reconfigure(...) or a new group");
  const Status left = left_member(Rank(3), "g");
  CHECK(left.code() == Code::kPeerLost);
  CHECK(left.culprit() == Rank(3));
  CHECK(left.message() ==
        "rank 3 has left group \"g\" (it called destroy_process_group, or its program "
        "ended: look at its log)");
  const Status silent = silent_member(Rank(1), "g", milliseconds(30'149));
  CHECK(silent.code() == Code::kPeerLost);
  CHECK(silent.culprit() == Rank(1));
  CHECK(silent.message() ==
        "rank 1 has sent nothing to group \"g\" for 30.1 s: it is stopped, its machine "
        "is down, or the link is cut; look at its process and its machine");
}

TEST_CASE("a mismatch names both calls, and a time-out names all missing members") {
  collectives::Call barrier, reduce;
  barrier.kind = collectives::CallKind::kBarrier;
  reduce.dtype = DType::kFloat32;
  reduce.count = 4;
  const Status both = mismatch(7, "g", barrier, Rank(0), reduce, Rank(2));
  CHECK(both.code() == Code::kInvalidArgument);
  CHECK(both.message().find("rank 0 calls " + describe(barrier) + " and rank 2 calls " +
                            describe(reduce) + " as collective 7 of group \"g\"; ") ==
        0);
  CHECK(
      found_too_late(both, "g").message() ==
      both.message() +
          "; some ranks were through with it before, so group \"g\" has ended: make a "
          "new one");
  const Status late = timed_out(7, "g", barrier, Rank(0), milliseconds(500),
                                {{Rank(2), 6}, {Rank(3), 7}});
  CHECK(late.code() == Code::kTimedOut);
  CHECK(late.culprit() == Rank(2));
  CHECK(late.message() ==
        describe(barrier) +
            ", collective 7 of group \"g\", Timed out after 500 ms on rank 0; still "
            "missing: rank 2 (its last call known here is number 6), rank 3 (has "
            "called it)");
  const Status out = timed_out(7, "g", barrier, Rank(0), milliseconds(500), {});
  CHECK(out.culprit() == kNoRank);
  CHECK(out.message().find("missing: nobody, data is on its way out") !=
        std::string::npos);
}

TEST_CASE("a call that does not fit into memory says on which rank") {
  collectives::Call barrier;
  barrier.kind = collectives::CallKind::kBarrier;
  const Status full = no_memory(7, "g", barrier, Rank(2));
  CHECK(full.code() == Code::kAborted);
  CHECK(full.culprit() == Rank(2));
  CHECK(full.message() == describe(barrier) +
                              ", collective 7 of group \"g\": rank 2 has no memory for "
                              "what the others send; make smaller calls");
}
