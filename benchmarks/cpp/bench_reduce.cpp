// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
// Throughput of the reduction kernels, in place as the collectives use them, beside
// memcpy and a plain loop:
//   bench_reduce [--quick] [--json FILE]
// GB/s counts every byte read or written once: (sources + 1) * size. The reference of
// each row is memcpy of the same size, counted the same way (2 * size).
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "kernels/reduce.h"

namespace aikido {
namespace {

struct Row {
  std::string name;
  double gb_per_s;
  double reference;  // 0: none
  double bar;        // least ratio to the reference; 0: none
};

double g_min_seconds = 0.02;

// Best of five samples, each long enough for the clock.
double measure_gb_per_s(double bytes, const std::function<void()>& body) {
  const SystemClock clock;
  double best = 0;
  for (int sample = 0; sample < 5; ++sample) {
    size_t calls = 0;
    double seconds = 0;
    const TimePoint start = clock.now();
    do {
      for (int i = 0; i < 4; ++i) body();
      calls += 4;
      seconds = to_seconds(clock.now() - start);
    } while (seconds < g_min_seconds / 5);
    best = std::max(best, bytes * static_cast<double>(calls) / seconds / 1e9);
  }
  return best;
}

std::string size_text(size_t bytes) {
  if (bytes >= size_t{1} << 20) return std::to_string(bytes >> 20) + " MiB";
  return std::to_string(bytes >> 10) + " KiB";
}

void plain_sum(float* out, const float* a, const float* b, size_t count) {
  for (size_t i = 0; i < count; ++i) out[i] = a[i] + b[i];
}

void bench_size(size_t bytes, std::vector<Row>& rows) {
  // Bytes of 0x3c: a harmless number in every floating format.
  std::vector<std::vector<unsigned char>> buffers(
      5, std::vector<unsigned char>(bytes, 0x3c));
  const std::string at = concat(" ", size_text(bytes));
  void* const out = buffers[0].data();
  const auto size = static_cast<double>(bytes);

  const double copy =
      measure_gb_per_s(2 * size, [&] { std::memcpy(out, buffers[1].data(), bytes); });
  rows.push_back({concat("memcpy", at), copy, 0, 0});
  const auto a = static_cast<float*>(out);
  const auto b = reinterpret_cast<const float*>(buffers[1].data());
  rows.push_back({concat("plain loop float32 k=2", at),
                  measure_gb_per_s(3 * size, [&] { plain_sum(a, a, b, bytes / 4); }),
                  copy, 0});

  const struct {
    ReduceOp op;
    DType dtype;
  } kCases[] = {
      {ReduceOp::kSum, DType::kFloat32},      {ReduceOp::kSum, DType::kFloat64},
      {ReduceOp::kSum, DType::kFloat16},      {ReduceOp::kSum, DType::kBFloat16},
      {ReduceOp::kMax, DType::kFloat32},      {ReduceOp::kSum, DType::kInt32},
      {ReduceOp::kProduct, DType::kUint8},    {ReduceOp::kProduct, DType::kInt64},
      {ReduceOp::kBor, DType::kBool},         {ReduceOp::kSum, DType::kComplex64},
      {ReduceOp::kProduct, DType::kComplex64}};
  for (const auto set : kernels::available_sets())
    for (const auto& c : kCases)
      for (const size_t k : {size_t{2}, size_t{4}}) {
        const auto reduce = kernels::find_reduce(c.op, c.dtype, set);
        std::vector<const void*> sources;
        // Products go elsewhere: in place they would soon be subnormal, which is slow.
        const size_t first = c.op == ReduceOp::kProduct ? 1 : 0;
        for (size_t i = 0; i < k; ++i) sources.push_back(buffers[first + i].data());
        const size_t count = bytes / size_of(c.dtype);
        // The mean, so that repeated calls in place keep to finite numbers.
        const double rate = measure_gb_per_s(static_cast<double>(k + 1) * size, [&] {
          reduce(out, sources.data(), k, count, 1.0 / static_cast<double>(k));
        });
        const bool is_main = set == kernels::available_sets().back() &&
                             c.op == ReduceOp::kSum && c.dtype == DType::kFloat32;
        rows.push_back({concat(name_of(c.op), " ", name_of(c.dtype), " ",
                               kernels::name_of(set), " k=", k, at),
                        rate, copy, is_main ? 0.8 : 0.0});
      }
}

void print(const Row& row) {
  std::printf("%-48s %8.1f GB/s", row.name.c_str(), row.gb_per_s);
  if (row.reference > 0) std::printf("  %5.2f of memcpy", row.gb_per_s / row.reference);
  if (row.bar > 0)
    std::printf("  bar %.2f %s", row.bar,
                row.gb_per_s / row.reference >= row.bar ? "holds" : "MISSED");
  std::printf("\n");
}

bool write_json(const char* path, const std::vector<Row>& rows) {
  std::FILE* file = std::fopen(path, "w");
  if (file == nullptr) return false;
  const char* separator = "[\n";
  for (const Row& row : rows) {
    std::fprintf(file, R"(%s{"case": "%s", "unit": "GB/s", "value": %.3f)", separator,
                 row.name.c_str(), row.gb_per_s);
    const double ratio = row.reference > 0 ? row.gb_per_s / row.reference : 0;
    if (row.reference > 0)
      std::fprintf(file, R"(, "reference": %.3f, "ratio": %.3f)", row.reference, ratio);
    else
      std::fprintf(file, R"(, "reference": null, "ratio": null)");
    if (row.bar > 0)
      std::fprintf(file, R"(, "bar": %.3f, "holds": %s})", row.bar,
                   ratio >= row.bar ? "true" : "false");
    else
      std::fprintf(file, R"(, "bar": null, "holds": null})");
    separator = ",\n";
  }
  std::fprintf(file, "\n]\n");
  return std::fclose(file) == 0;
}

}  // namespace
}  // namespace aikido

int main(int argc, char** argv) {
  const char* json = nullptr;
  size_t largest = size_t{64} << 20;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
      json = argv[++i];
    } else if (std::strcmp(argv[i], "--quick") == 0) {
      largest = size_t{1} << 20;
    } else {
      std::fprintf(stderr, "usage: bench_reduce [--quick] [--json FILE]\n");
      return 2;
    }
  }
  std::vector<aikido::Row> rows;
  for (size_t bytes = 4096; bytes <= largest; bytes *= 16) {
    aikido::bench_size(bytes, rows);
  }
  if (largest >= size_t{64} << 20) aikido::bench_size(largest, rows);
  for (const aikido::Row& row : rows) aikido::print(row);
  if (json != nullptr && !aikido::write_json(json, rows)) {
    std::perror(json);
    return 1;
  }
  return 0;
}
