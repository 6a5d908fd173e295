// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
// The simulator from the command line (README.md).
#include <getopt.h>

#include <algorithm>
#include <array>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "base/mutation.h"
#include "sim/cost.h"
#include "sim/hunt.h"
#include "sim/random_script.h"
#include "sim/shrink.h"
#include "sim/simulation.h"

using namespace aikido;
using namespace aikido::sim;

namespace {

constexpr const char* kUsage = R"(sim [OPTION]...
  --seeds A..B       random schedules of these seeds
  --script FILE      the schedule in FILE, or all *.txt of a folder; repeatable
  --members N        schedules of N members (else 2 to 8, by the seed)
  --tolerated N      N members may be lost and partial operations still end well
  --mutation NAME    with one rule switched off; "list" prints their names
  --hunt             is every mutation found by the scripts and seeds?
  --cost[=N]         messages and bytes of an operation, up to N members
  --print            print the schedules instead of running them
  --verbose          print every call, end, fault and frame
  --keep-going       do not stop at the first failure; count them
)";

constexpr int kShrinkRuns = 2000;

struct Arguments {
  uint64_t first_seed = 1, last_seed = 0;
  std::vector<NamedScript> scripts;
  int32_t members = 0;
  Options options;
  bool hunts = false, prints = false, keeps_going = false;
  int cost = 0;
};

[[noreturn]] void refuse(const std::string& why) {
  std::cerr << "sim: " << why << "\n";
  std::exit(2);
}

uint64_t number(const std::string& text) {
  if (text.empty() || text.find_first_not_of("0123456789") != std::string::npos)
    refuse(concat("'", text, "' is no number"));
  return std::stoull(text);
}

NamedScript read_script(const std::filesystem::path& path) {
  std::ifstream in(path);
  if (!in) refuse(concat("cannot read ", path.string()));
  const std::string text(std::istreambuf_iterator<char>(in), {});
  auto script = parse(text);
  if (!script) refuse(concat(path.string(), ": ", script.status().message()));
  return {path.filename().string(), *std::move(script)};
}

void read_scripts(const std::filesystem::path& path, Arguments& arguments) {
  if (!std::filesystem::is_directory(path))
    return arguments.scripts.push_back(read_script(path));
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(path))
    if (entry.path().extension() == ".txt") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  for (const auto& file : files) arguments.scripts.push_back(read_script(file));
}

void choose_mutation(const std::string& name) {
  if (name == "list") {
    for (const auto known : kMutationNames) std::cout << known << "\n";
    std::exit(0);
  }
  const auto mutation = mutation_named(name);
  if (!mutation) refuse(concat("no mutation is called '", name, "'"));
  chosen_mutation = *mutation;
}

Arguments read_arguments(int argc, char** argv) {
  Arguments a;
  const option known[] = {{"seeds", required_argument, nullptr, 's'},
                          {"script", required_argument, nullptr, 'f'},
                          {"members", required_argument, nullptr, 'n'},
                          {"tolerated", required_argument, nullptr, 't'},
                          {"mutation", required_argument, nullptr, 'm'},
                          {"hunt", no_argument, nullptr, 'h'},
                          {"cost", optional_argument, nullptr, 'c'},
                          {"print", no_argument, nullptr, 'p'},
                          {"verbose", no_argument, nullptr, 'v'},
                          {"keep-going", no_argument, nullptr, 'k'},
                          {nullptr, 0, nullptr, 0}};
  for (int c = 0; (c = getopt_long(argc, argv, "", known, nullptr)) != -1;) {
    const std::string value = optarg == nullptr ? "" : optarg;
    if (c == 's') {
      const size_t dots = value.find("..");
      a.first_seed = number(value.substr(0, dots));
      a.last_seed =
          dots == std::string::npos ? a.first_seed : number(value.substr(dots + 2));
    } else if (c == 'f') {
      read_scripts(value, a);
    } else if (c == 'n') {
      a.members = static_cast<int32_t>(number(value));
      if (a.members < 2 || a.members > 64) refuse("2 to 64 members");
    } else if (c == 't') {
      a.options.members_tolerated = static_cast<int32_t>(number(value));
    } else if (c == 'm') {
      choose_mutation(value);
    } else if (c == 'h') {
      a.hunts = true;
    } else if (c == 'c') {
      a.cost = value.empty() ? 64 : static_cast<int>(number(value));
    } else if (c == 'p') {
      a.prints = true;
    } else if (c == 'v') {
      a.options.log = &std::cout;
    } else if (c == 'k') {
      a.keeps_going = true;
    } else {
      std::cerr << kUsage;
      std::exit(2);
    }
  }
  if (optind < argc) refuse(concat("'", argv[optind], "' is not expected\n", kUsage));
  return a;
}

struct Totals {
  uint64_t num_runs = 0, num_failed = 0, num_frames = 0, num_views = 0;
  std::array<uint64_t, 3> num_ends{};
  std::map<std::string, uint64_t> by_promise;
};

// Returns true if the next run may follow.
bool try_one(const std::string& name, const Script& script, const Arguments& arguments,
             Totals& totals) {
  if (arguments.prints) {
    std::cout << "# " << name << "\n" << to_text(script) << "\n";
    return true;
  }
  const Report report = run(script, arguments.options);
  ++totals.num_runs;
  totals.num_frames += report.num_frames;
  totals.num_views += report.num_views - 1;
  for (size_t i = 0; i < totals.num_ends.size(); ++i)
    totals.num_ends[i] += report.num_ends[i];
  if (report.violation.empty()) return true;
  ++totals.num_failed;
  ++totals.by_promise[report.violation.substr(0, report.violation.find(':'))];
  std::cout << name << ": " << report.violation << "\n";
  if (arguments.keeps_going) return true;
  const Script small = shrink(script, arguments.options, kShrinkRuns);
  std::cout << "\n# " << run(small, arguments.options).violation << "\n"
            << to_text(small) << "\nRun it again: sim --script FILE --verbose\n";
  return false;
}

int try_all(const Arguments& arguments) {
  Totals totals;
  bool goes_on = true;
  for (const NamedScript& s : arguments.scripts) {
    goes_on = try_one(s.name, s.script, arguments, totals);
    if (!goes_on) break;
  }
  for (uint64_t seed = arguments.first_seed; goes_on && seed <= arguments.last_seed;
       ++seed)
    goes_on = try_one(concat("seed ", seed), random_script(seed, arguments.members),
                      arguments, totals);
  if (arguments.prints) return 0;
  std::cout << totals.num_runs << " runs, " << totals.num_failed
            << " failed; calls: " << totals.num_ends[0] << " complete, "
            << totals.num_ends[1] << " partial, " << totals.num_ends[2]
            << " with an error; " << totals.num_views << " view changes, "
            << totals.num_frames << " frames\n";
  for (const auto& [promise, count] : totals.by_promise)
    std::cout << "  " << promise << ": " << count << "\n";
  return totals.num_failed == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Arguments arguments = read_arguments(argc, argv);
    if (arguments.cost > 0) {
      print_cost(arguments.cost, std::cout);
      return 0;
    }
    if (arguments.hunts)
      return hunt_mutations(arguments.scripts, arguments.last_seed, arguments.options,
                            std::cout)
                 ? 0
                 : 1;
    if (arguments.scripts.empty() && arguments.last_seed == 0) refuse(kUsage);
    return try_all(arguments);
  } catch (const std::exception& e) {
    std::cerr << "sim: " << e.what() << "\n";
    return 2;
  }
}
