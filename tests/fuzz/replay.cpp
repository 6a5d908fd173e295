// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
// The targets without libFuzzer, for any compiler:
//
//   fuzz_replay TARGET...            seeds, then inputs made from a fixed random seed
//   fuzz_replay TARGET --file FILE   one input that a fuzzer found
//   fuzz_replay TARGET --seeds DIR   writes the seeds as files, for a fuzzer to start
#include <sys/resource.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "target.h"

namespace aikido::fuzz {
namespace {

constexpr const Target* kTargets[] = {&kGreeting, &kFrame, &kHandle, &kStream, &kView};
constexpr int kNumRandom = 2000, kNumMutants = 60;
constexpr size_t kMaxBytes = 600;
// Limit for the growth of memory: far more than any target needs, far less than a peer
// can announce.
constexpr long kMaxGrowthKib = 200 << 10;

// Sanitizers keep freed memory.
#if defined(__has_feature)
constexpr bool kIsSanitized =
    __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kIsSanitized = true;
#else
constexpr bool kIsSanitized = false;
#endif

long peak_kib() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

// Reports the failing input, and rethrows the failure.
void run(const Target& target, const Bytes& input) {
  try {
    target.run(input);
  } catch (...) {
    std::fprintf(stderr, "%s fails on these %zu bytes:", target.name, input.size());
    for (const uint8_t b : input) std::fprintf(stderr, " %02x", b);
    std::fprintf(stderr, "\n");
    throw;
  }
}

void run_all(const Target& target) {
  const long before = peak_kib();
  std::mt19937 random(20240229);
  size_t count = 0;
  for (const Bytes& seed : target.seeds()) {
    run(target, seed);
    for (int i = 0; i < kNumMutants; ++i, ++count) {
      Bytes mutant = seed;
      for (auto n = random() % 4; n-- > 0 && !mutant.empty();)
        mutant[random() % mutant.size()] = static_cast<uint8_t>(random());
      if (random() % 4 == 0) mutant.resize(random() % (mutant.size() + 1));
      run(target, mutant);
    }
  }
  for (int i = 0; i < kNumRandom; ++i, ++count) {
    Bytes input(random() % kMaxBytes);
    for (uint8_t& b : input) b = static_cast<uint8_t>(random());
    run(target, input);
  }
  const long growth = peak_kib() - before;
  std::printf("%s: %zu inputs, %ld KiB more at the peak\n", target.name, count, growth);
  require(kIsSanitized || growth < kMaxGrowthKib,
          "the memory that a peer can take has a bound");
}

Bytes read(const char* name) {
  std::ifstream file(name, std::ios::binary);
  require(file.good(), std::string("file ") + name + " can be read");
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_seeds(const Target& target, const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  int number = 0;
  for (const Bytes& seed : target.seeds()) {
    std::ofstream file(folder / std::to_string(number++), std::ios::binary);
    file.write(reinterpret_cast<const char*>(seed.data()),
               static_cast<std::streamsize>(seed.size()));
  }
}

const Target& find(const char* name) {
  for (const Target* target : kTargets)
    if (std::strcmp(target->name, name) == 0) return *target;
  throw std::invalid_argument(std::string("no target ") + name);
}

}  // namespace
}  // namespace aikido::fuzz

int main(int argc, char** argv) {
  using namespace aikido::fuzz;
  if (argc == 4 && std::strcmp(argv[2], "--file") == 0) {
    run(find(argv[1]), read(argv[3]));
  } else if (argc == 4 && std::strcmp(argv[2], "--seeds") == 0) {
    write_seeds(find(argv[1]), argv[3]);
  } else {
    for (int i = 1; i < argc; ++i) run_all(find(argv[i]));
  }
}
