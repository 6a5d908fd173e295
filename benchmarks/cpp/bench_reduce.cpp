// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
// Throughput of the reduction kernels, in place as the collectives use them, beside
// memcpy and a plain loop:
//   bench_reduce [--quick] [--json FILE]
// GB/s counts every byte read or written once: (sources + 1) * size. The reference of
// each row is memcpy of the same size, counted the same way (2 * size). The reference
// of a weighted mean is the mean without weights.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "collectives/weights.h"
#include "kernels/reduce.h"

namespace aikido {
namespace {

struct Row {
  std::string name;
  double gb_per_s;
  double reference;               // 0: none
  double bar;                     // least ratio to the reference; 0: none
  const char* beside = "memcpy";  // name of the reference
};

constexpr double kSampleSeconds = 0.004;

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
    } while (seconds < kSampleSeconds);
    best = std::max(best, bytes * static_cast<double>(calls) / seconds / 1e9);
  }
  return best;
}

void plain_sum(float* out, const float* a, const float* b, size_t count) {
  for (size_t i = 0; i < count; ++i) out[i] = a[i] + b[i];
}

void bench_size(size_t bytes, std::vector<Row>& rows) {
  // Bytes of 0x3c: a harmless number in every floating format.
  std::vector<std::vector<unsigned char>> buffers(
      5, std::vector<unsigned char>(bytes, 0x3c));
  const std::string at = concat(" ", bytes >> 10, " KiB");
  void* const out = buffers[0].data();
  const auto size = static_cast<double>(bytes);

  const auto measure_copy = [&] {
    return measure_gb_per_s(2 * size,
                            [&] { std::memcpy(out, buffers[1].data(), bytes); });
  };
  const double copy = measure_copy();
  const auto best = kernels::available_sets().back();
  rows.push_back({concat("memcpy", at), copy, 0, 0});
  const auto a = static_cast<float*>(out);
  const auto b = reinterpret_cast<const float*>(buffers[1].data());
  rows.push_back({concat("plain loop float32 k=2", at),
                  measure_gb_per_s(3 * size, [&] { plain_sum(a, a, b, bytes / 4); }),
                  copy, 0});

  using enum ReduceOp;
  using enum DType;
  const std::pair<ReduceOp, DType> kCases[] = {
      {kSum, kFloat32},       {kSum, kFloat64},   {kSum, kFloat16},
      {kSum, kBFloat16},      {kMax, kFloat32},   {kSum, kInt32},
      {kProduct, kUint8},     {kProduct, kInt64}, {kSum, kComplex64},
      {kProduct, kComplex64}, {kBor, kBool}};
  for (const auto set : kernels::available_sets())
    for (const auto& [op, dtype] : kCases)
      for (const size_t k : {size_t{2}, size_t{4}}) {
        const auto reduce = kernels::find_reduce(op, dtype, set);
        std::vector<const void*> sources;
        // Products go to another buffer: in place they would soon be subnormal, which
        // is slow.
        const size_t first = op == kProduct ? 1 : 0;
        for (size_t i = 0; i < k; ++i) sources.push_back(buffers[first + i].data());
        const size_t count = bytes / size_of(dtype);
        // The mean keeps the numbers finite when a call in place is repeated.
        const double scale = 1.0 / static_cast<double>(k);
        const double rate = measure_gb_per_s(static_cast<double>(k + 1) * size, [&] {
          reduce(out, sources.data(), k, count, scale);
        });
        const bool has_bar = set == best && op == kSum && dtype == kFloat32 && k == 2;
        rows.push_back(
            {concat(name_of(op), " ", name_of(dtype), " ", name_of(set), " k=", k, at),
             rate, has_bar ? measure_copy() : copy, has_bar ? 0.8 : 0.0});
      }
}

// Means of 4 buffers with weights, in place, beside the mean without weights.
void bench_weights(size_t bytes, std::vector<Row>& rows) {
  constexpr size_t kNum = 4;
  std::vector<std::vector<unsigned char>> buffers(
      kNum, std::vector<unsigned char>(bytes, 0x3c));
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16,
                            DType::kBFloat16, DType::kComplex64}) {
    const auto mean = kernels::find_reduce(ReduceOp::kAvg, dtype);
    const size_t count = bytes / size_of(dtype);
    double equal = 0;
    for (const bool is_weighted : {false, true}) {
      const collectives::WeightedMean weighted(
          is_weighted ? std::vector<double>{1, 2, 3, 4} : std::vector<double>(kNum, 1));
      const double rate =
          measure_gb_per_s(static_cast<double>((kNum + 1) * bytes), [&] {
            std::array<const void*, kNum> inputs;
            for (size_t i = 0; i < kNum; ++i) inputs[i] = buffers[i].data();
            weighted.fold(buffers[0].data(), inputs.data(), mean, dtype, count);
          });
      if (!is_weighted) equal = rate;
      if (is_weighted)
        rows.push_back({concat("weighted avg ", name_of(dtype), " k=", kNum, " ",
                               bytes >> 10, " KiB"),
                        rate, equal, 0, "avg"});
    }
  }
}

void print(const Row& row) {
  std::printf("%-48s %8.1f GB/s", row.name.c_str(), row.gb_per_s);
  if (row.reference > 0)
    std::printf("  %5.2f of %s", row.gb_per_s / row.reference, row.beside);
  if (row.bar > 0)
    std::printf("  bar %.2f %s", row.bar,
                row.gb_per_s / row.reference >= row.bar ? "holds" : "MISSED");
  std::printf("\n");
}

bool write_json(const char* path, const std::vector<Row>& rows) {
  std::FILE* file = std::fopen(path, "w");
  if (file == nullptr) return false;
  const auto number = [](double v) { return v > 0 ? concat(v) : std::string("null"); };
  std::string text = "[";
  for (const Row& row : rows) {
    const double ratio = row.reference > 0 ? row.gb_per_s / row.reference : 0;
    const char* const holds = row.bar <= 0       ? "null"
                              : ratio >= row.bar ? "true"
                                                 : "false";
    text += concat(text.size() > 1 ? ",\n" : "\n", R"({"case": ")", row.name,
                   R"(", "unit": "GB/s", "value": )", number(row.gb_per_s),
                   R"(, "reference": )", number(row.reference), R"(, "ratio": )",
                   number(ratio), R"(, "bar": )", number(row.bar), R"(, "holds": )",
                   holds, "}");
  }
  std::fprintf(file, "%s\n]\n", text.c_str());
  return std::fclose(file) == 0;
}

}  // namespace
}  // namespace aikido

int main(int argc, char** argv) {
  const char* json = nullptr;
  size_t largest = size_t{64} << 20;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0 && i + 1 < argc) json = argv[++i];
    if (std::strcmp(argv[i], "--quick") == 0) largest = size_t{1} << 20;
  }
  std::vector<aikido::Row> rows;
  for (const size_t kib : {4u, 64u, 1024u, 16384u, 65536u})
    if (kib << 10 <= largest) {
      aikido::bench_size(kib << 10, rows);
      aikido::bench_weights(kib << 10, rows);
    }
  for (const aikido::Row& row : rows) aikido::print(row);
  if (json == nullptr || aikido::write_json(json, rows)) return 0;
  std::perror(json);
  return 1;
}
