// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
// Sums of k buffers of float32, beside loops that do a part of the work
// (memory_loops.h):
//   bench_kernels [--prefetch|--no-prefetch] TURNS KIB... (of all sources together)
// The functions take turns in short samples. Each function prints one line of JSON for
// kernels.py: the bytes that it reads in a pass, and the seconds of a pass in each
// turn. As in the engine, the result takes the place of the own contribution, the other
// contributions are in buffers of the pool, and a call folds a chunk of at most 256 KiB
// of each.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "base/buffer_pool.h"
#include "base/clock.h"
#include "base/settings.h"
#include "kernels/prefetch.h"
#include "kernels/reduce.h"
#include "memory_loops.h"

namespace aikido {
namespace {

constexpr double kSampleSeconds = 0.0008;

struct Measured {
  std::string kind;  // sum, or the kind of a MemoryLoop
  std::string set;
  std::string name;
  std::function<void(size_t)> run;  // runs this number of passes
  std::vector<double> seconds;
};

// Seconds per pass, measured over `num_passes`.
double sample(const Measured& m, size_t num_passes) {
  const SystemClock clock;
  m.run(1);  // brings displaced data back into the caches
  const TimePoint start = clock.now();
  m.run(num_passes);
  return to_seconds(clock.now() - start) / static_cast<double>(num_passes);
}

std::vector<bench::MemoryLoop> loops_of(kernels::InstructionSet set) {
  switch (set) {
#if defined(__x86_64__)
    case kernels::InstructionSet::kAvx2:
      return bench::memory_loops_avx2();
    case kernels::InstructionSet::kAvx512:
      return bench::memory_loops_avx512();
#endif
    default:
      return bench::memory_loops_portable();
  }
}

// The memory of one call of a sum.
struct Chunk {
  std::byte* out;
  std::array<const void*, 8> sources;
  size_t count;
};

std::vector<Chunk> chunks_of(const std::vector<std::byte*>& buffers, size_t bytes) {
  const auto most = static_cast<size_t>(Settings{}.transport_chunk_bytes);
  std::vector<Chunk> chunks;
  for (size_t first = 0; first < bytes; first += most) {
    Chunk chunk{buffers[0] + first, {}, std::min(most, bytes - first) / sizeof(float)};
    for (size_t k = 0; k < buffers.size(); ++k) chunk.sources[k] = buffers[k] + first;
    chunks.push_back(chunk);
  }
  return chunks;
}

void measure(size_t kib, size_t num_sources, size_t num_turns) {
  const size_t bytes = (kib << 10) / num_sources / 4096 * 4096;
  BufferPool pool(0);
  std::vector<Buffer> owners;
  std::vector<std::byte*> buffers;
  for (size_t k = 0; k < num_sources; ++k) {
    owners.push_back(pool.take(bytes));
    buffers.push_back(owners.back().data());
    std::memset(buffers.back(), 0, bytes);  // sums in place stay zero
  }
  const std::vector<Chunk> chunks = chunks_of(buffers, bytes);
  std::vector<Measured> all;
  for (const auto set : kernels::available_sets()) {
    const std::string name = kernels::name_of(set);
    const auto reduce = kernels::find_reduce(ReduceOp::kSum, DType::kFloat32, set);
    all.push_back({"sum",
                   name,
                   "sum",
                   [=, &chunks](size_t num_passes) {
                     for (; num_passes > 0; --num_passes)
                       for (const Chunk& c : chunks)
                         reduce(c.out, c.sources.data(), num_sources, c.count, 1.0);
                   },
                   {}});
    for (const bench::MemoryLoop& loop : loops_of(set))
      all.push_back({loop.kind,
                     name,
                     loop.name,
                     [=, &buffers](size_t num_passes) {
                       for (; num_passes > 0; --num_passes)
                         loop.run(buffers.data(), num_sources, bytes);
                     },
                     {}});
  }
  // Each function gets as many passes as fill a sample. The first turn only warms up.
  std::vector<size_t> num_passes;
  for (const Measured& m : all) {
    const double pass = std::max(1e-9, sample(m, 10));
    num_passes.push_back(
        std::max<size_t>(1, static_cast<size_t>(kSampleSeconds / pass)));
  }
  // Each turn has another order. Some functions leave the caches in such a state that
  // the next function finds less of its data there for more than one pass.
  std::vector<size_t> order(all.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::mt19937 shuffler;
  for (size_t turn = 0; turn <= num_turns; ++turn) {
    std::shuffle(order.begin(), order.end(), shuffler);
    for (const size_t i : order) {
      const double seconds = sample(all[i], num_passes[i]);
      if (turn > 0) all[i].seconds.push_back(seconds);
    }
  }
  for (const Measured& m : all) {
    std::printf(R"({"kib": %zu, "sources": %zu, "kind": "%s", "set": "%s", )"
                R"("name": "%s", "bytes_read": %zu, "seconds": [)",
                kib, num_sources, m.kind.c_str(), m.set.c_str(), m.name.c_str(),
                bytes * num_sources);
    for (size_t i = 0; i < m.seconds.size(); ++i)
      std::printf("%s%.9g", i == 0 ? "" : ", ", m.seconds[i]);
    std::printf("]}\n");
  }
  std::fflush(stdout);
}

}  // namespace
}  // namespace aikido

int main(int argc, char** argv) {
  std::vector<size_t> numbers;
  const std::string first = argc > 1 ? argv[1] : "";
  const bool is_told = first == "--prefetch" || first == "--no-prefetch";
  if (is_told) aikido::kernels::prefetches = first == "--prefetch";
  for (int i = is_told ? 2 : 1; i < argc; ++i)
    numbers.push_back(std::strtoull(argv[i], nullptr, 10));
  if (numbers.size() < 2 || std::count(numbers.begin(), numbers.end(), 0u) > 0) {
    std::fprintf(stderr,
                 "usage: bench_kernels [--prefetch|--no-prefetch] TURNS KIB...\n");
    return 2;
  }
  for (size_t i = 1; i < numbers.size(); ++i)
    for (const size_t num_sources : {2u, 4u, 8u})
      aikido::measure(numbers[i], num_sources, numbers[0]);
}
