// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "pipeline/grid.h"

#include <cmath>

#include "harness/catch.h"
#include "pipeline/generate.h"
#include "pipeline/options.h"

namespace aikido::pipeline {
namespace {

using testing::with;

std::string grid_of(const GenerateOptions& options, const Timing& timing,
                    const GridOptions& grid = {}) {
  auto schedule = generate(options);
  REQUIRE(schedule.is_ok());
  auto simulation = simulate(*schedule, timing);
  REQUIRE(simulation.is_ok());
  auto text = to_grid(*schedule, *simulation, grid);
  return text ? *text : text.status().message();
}

Timing unit(int stages) {
  return {std::vector<StageTimes>(static_cast<size_t>(stages)), {}, {}};
}

TEST_CASE("1F1B as a grid") {
  CHECK(grid_of(with(Method::kOneFOneB, 3, 3), unit(3)) ==
        "rank 0  F0 F1 F2 .  .  .  .  B0 B0 .  B1 B1 .  B2 B2\n"
        "rank 1  .  F0 F1 .  .  B0 B0 F2 B1 B1 .  B2 B2 .  .\n"
        "rank 2  .  .  F0 B0 B0 F1 B1 B1 F2 B2 B2 .  .  .  .\n");
}

TEST_CASE("zero bubble as a grid") {
  CHECK(grid_of(with(Method::kZeroBubble, 4, 4), unit(4)) ==
        "rank 0  F0 F1 F2 F3 .  .  .  I0 W0 I1 W1 I2 W2 I3 W3\n"
        "rank 1  .  F0 F1 F2 .  .  I0 F3 I1 W0 I2 W1 I3 W2 W3\n"
        "rank 2  .  .  F0 F1 .  I0 F2 I1 F3 I2 W0 I3 W1 W2 W3\n"
        "rank 3  .  .  .  F0 I0 F1 I1 F2 I2 F3 I3 W0 W1 W2 W3\n");
}

TEST_CASE("several stages of a rank are told apart, and steps are seen") {
  auto options = with(Method::kInterleaved, 2, 2);
  options.stages_per_rank = 2;
  auto times = unit(2);
  times.stages[1].step = 1;
  CHECK(grid_of(options, times) ==
        "rank 0  F0.0 F1.0 B1.0 B1.0 F0.1 B0.0 B0.0 F1.1 B1.1 B1.1 U1   B0.1 B0.1\n");
}

TEST_CASE("replicas and links in time") {
  auto options = with(Method::kOneFOneB, 2, 2);
  options.replicas = {1, 2};
  auto times = unit(2);
  times.links = {1};
  CHECK(grid_of(options, times) ==
        "rank 0  F0 F1 .  .  .  .  B0 B0 B1 B1\n"
        "rank 1  .  .  F0 B0 B0 .  .  .  .  .\n"
        "rank 2  .  .  .  F1 B1 B1 .  .  .  .\n");
}

TEST_CASE("a slot shows the instruction at its middle") {
  auto times = unit(1);
  times.stages[0].forward = 0.1;
  times.stages[0].backward = 0.3;
  CHECK(grid_of(with(Method::kGpipe, 1, 2), times) ==
        "rank 0  F0 F1 B0 B0 B0 B1 B1 B1\n");
  GridOptions coarse;
  coarse.slot = 0.2;
  CHECK(grid_of(with(Method::kGpipe, 1, 2), times, coarse) == "rank 0  F1 B0 B1 B1\n");
}

TEST_CASE("times that are no binary fractions add no slot") {
  auto times = unit(1);
  times.stages[0].forward = 0.1;
  times.stages[0].backward = 0.2;
  CHECK(grid_of(with(Method::kGpipe, 1, 1), times) == "rank 0  F0 B0 B0\n");
}

TEST_CASE("a long grid is cut off") {
  GridOptions options;
  options.max_slots = 4;
  CHECK(grid_of(with(Method::kOneFOneB, 2, 12), unit(2), options) ==
        "rank 0  F0 F1 .  . ...\n"
        "rank 1  .  F0 B0 B0 ...\n");
}

TEST_CASE("a schedule without time is an empty grid, and bad slots are refused") {
  auto times = unit(1);
  times.stages[0].forward = times.stages[0].backward = 0;
  CHECK(grid_of(with(Method::kGpipe, 1, 1), times) == "rank 0\n");
  GridOptions options;
  options.slot = -1;
  CHECK(grid_of(with(Method::kGpipe, 1, 1), unit(1), options) ==
        "a slot of the grid is -1; it takes a finite time above 0");
  options.slot = NAN;
  CHECK(grid_of(with(Method::kGpipe, 1, 1), unit(1), options) ==
        "a slot of the grid is nan; it takes a finite time above 0");
  options = {0, 0};
  CHECK(grid_of(with(Method::kGpipe, 1, 1), unit(1), options) ==
        "max_slots is 0; it takes 1 or more");
}

}  // namespace
}  // namespace aikido::pipeline
