// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "pipeline/profile.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/text.h"

namespace aikido::pipeline {
namespace {

constexpr std::string_view kSeparator = " -- ";

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r";
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

std::vector<std::string_view> split(std::string_view text, std::string_view separator) {
  std::vector<std::string_view> parts;
  for (size_t at = 0;;) {
    const size_t next = text.find(separator, at);
    parts.push_back(trimmed(text.substr(at, next - at)));
    if (next == std::string_view::npos) return parts;
    at = next + separator.size();
  }
}

template <class Number>
std::optional<Number> number_in(std::string_view text) {
  Number value{};
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// One number, or the sum of a list in brackets.
std::optional<double> size_in(std::string_view text) {
  if (!text.starts_with('[')) return number_in<double>(text);
  if (!text.ends_with(']')) return std::nullopt;
  double sum = 0;
  for (const auto part : split(text.substr(1, text.size() - 2), ";")) {
    const auto value = number_in<double>(part);
    if (!value) return std::nullopt;
    sum += *value;
  }
  return sum;
}

Status read_figures(std::string_view text, Layer& layer) {
  const std::array<std::pair<std::string_view, double*>, 4> wanted = {
      {{"forward_compute_time", &layer.forward_ms},
       {"backward_compute_time", &layer.backward_ms},
       {"activation_size", &layer.activation_bytes},
       {"parameter_size", &layer.parameter_bytes}}};
  const auto fields = split(text, ",");
  for (size_t i = 0; i < wanted.size(); ++i) {
    const auto& [name, target] = wanted[i];
    const auto field = i < fields.size() ? fields[i] : std::string_view{};
    const size_t equals = field.find('=');
    if (equals == std::string_view::npos || trimmed(field.substr(0, equals)) != name)
      return invalid(concat("layer ", quoted(layer.id), " has ", quoted(field),
                            " where ", name, "=<number> is expected"));
    const auto value = trimmed(field.substr(equals + 1));
    const auto number =
        name == "activation_size" ? size_in(value) : number_in<double>(value);
    if (!number)
      return invalid(concat("layer ", quoted(layer.id), ": ", name, " is ",
                            quoted(value), ", which is no number"));
    *target = *number;
  }
  if (fields.size() > wanted.size())
    return invalid(concat("layer ", quoted(layer.id), " has ",
                          quoted(fields[wanted.size()]), " after parameter_size"));
  return Status::ok();
}

Result<Layer> read_layer(std::string_view line) {
  const auto parts = split(line, kSeparator);
  Layer layer;
  layer.id = parts.front();
  // A description may contain the separator, so the numbers are found by their first
  // key.
  const auto figures = std::find_if(parts.begin(), parts.end(), [](auto part) {
    return part.starts_with("forward_compute_time");
  });
  if (figures == parts.end() || figures < parts.begin() + 2)
    return invalid(concat(quoted(line),
                          " is no layer; one is <id> -- <description> -- "
                          "forward_compute_time=<ms>, backward_compute_time=<ms>, "
                          "activation_size=<bytes>, parameter_size=<bytes>"));
  for (auto part = parts.begin() + 1; part != figures; ++part)
    layer.description +=
        concat(layer.description.empty() ? "" : std::string(kSeparator), *part);
  AIKIDO_TRY(read_figures(*figures, layer));
  if (figures + 1 == parts.end()) return layer;
  constexpr std::string_view kStage = "stage_id=";
  const auto rest = *(figures + 1);
  const auto stage = rest.starts_with(kStage)
                         ? number_in<int>(rest.substr(kStage.size()))
                         : std::nullopt;
  if (!stage || *stage < 0 || figures + 2 != parts.end())
    return invalid(concat("layer ", quoted(layer.id), " ends with ", quoted(rest),
                          "; only stage_id=<number> may be there"));
  layer.stage = *stage;
  return layer;
}

Status validate_layer(const Layer& layer, size_t number) {
  if (layer.id.empty())
    return invalid(concat("layer ", number, " of the profile has an empty id"));
  // Refuses text that could not be read back from a file.
  const auto breaks = [](std::string_view text) {
    return text.find_first_of("\r\n") != std::string_view::npos;
  };
  if (breaks(layer.id) || trimmed(layer.id) != layer.id ||
      layer.id.find(kSeparator) != std::string::npos)
    return invalid(concat("the id ", quoted(layer.id),
                          " has a line break, spaces around it or \" -- \" in it"));
  if (breaks(layer.description))
    return invalid(
        concat("the description of layer ", quoted(layer.id), " has a line break"));
  const std::pair<const char*, double> figures[] = {
      {"forward time", layer.forward_ms},
      {"backward time", layer.backward_ms},
      {"activation size", layer.activation_bytes},
      {"parameter size", layer.parameter_bytes}};
  for (const auto& [name, value] : figures)
    if (!std::isfinite(value) || value < 0)
      return invalid(concat("the ", name, " of layer ", quoted(layer.id), " is ", value,
                            "; it takes a finite number from 0 up"));
  return Status::ok();
}

// By layer: layers that need its output.
using Needs = std::vector<std::vector<size_t>>;

// "a -> b -> a" of a cycle through `start`. Requires: each layer reachable from there
// is needed by another layer of `left`.
std::string cycle_from(size_t start, const Needs& needed_by,
                       const std::vector<bool>& left, const Profile& profile) {
  std::vector<size_t> path;
  std::vector<bool> seen(left.size());
  size_t at = start;
  while (!seen[at]) {
    seen[at] = true;
    path.push_back(at);
    at = *std::find_if(needed_by[at].begin(), needed_by[at].end(),
                       [&](size_t next) { return left[next]; });
  }
  std::string text;
  for (auto it = std::find(path.begin(), path.end(), at); it != path.end(); ++it)
    text += concat(quoted(profile.layers[*it].id), " -> ");
  return text + quoted(profile.layers[at].id);
}

// Removes layers that nothing needs, repeatedly; only cycles remain.
Status refuse_cycle(const Profile& profile) {
  const size_t count = profile.layers.size();
  Needs needed_by(count), needs(count);
  std::vector<size_t> open(count);
  for (const Edge& edge : profile.edges) {
    needed_by[edge.from].push_back(edge.to);
    needs[edge.to].push_back(edge.from);
    ++open[edge.from];
  }
  std::vector<bool> left(count, true);
  std::vector<size_t> free;
  for (size_t i = 0; i < count; ++i)
    if (open[i] == 0) free.push_back(i);
  while (!free.empty()) {
    const size_t layer = free.back();
    free.pop_back();
    left[layer] = false;
    for (const size_t from : needs[layer])
      if (--open[from] == 0) free.push_back(from);
  }
  const auto in_cycle = std::find(left.begin(), left.end(), true);
  if (in_cycle == left.end()) return Status::ok();
  const auto start = static_cast<size_t>(in_cycle - left.begin());
  return invalid(concat("the layers need each other in a cycle: ",
                        cycle_from(start, needed_by, left, profile)));
}

std::string shortest(double value) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return {text.data(), end};
}

using Index = std::unordered_map<std::string, size_t>;  // index of a layer by its id

// Adds an edge between known layers, once.
Status add_edge(Profile& profile, const Index& index, const std::string& from,
                const std::string& to) {
  for (const auto* end : {&from, &to})
    if (!index.contains(*end))
      return invalid(concat("the edge from ", quoted(from), " to ", quoted(to),
                            " needs a layer ", quoted(*end), ", and there is none"));
  const Edge edge{index.at(from), index.at(to)};
  if (std::find(profile.edges.begin(), profile.edges.end(), edge) ==
      profile.edges.end())
    profile.edges.push_back(edge);
  return Status::ok();
}

}  // namespace

Status validate(const Profile& profile) {
  if (profile.layers.empty())
    return invalid("the profile is empty; it needs one layer at least");
  std::unordered_map<std::string_view, size_t> seen;
  for (size_t i = 0; i < profile.layers.size(); ++i) {
    AIKIDO_TRY(validate_layer(profile.layers[i], i + 1));
    if (!seen.emplace(profile.layers[i].id, i).second)
      return invalid(concat("the id ", quoted(profile.layers[i].id),
                            " is there twice; each layer needs one of its own"));
  }
  for (const Edge& edge : profile.edges) {
    const size_t count = profile.layers.size();
    if (edge.from >= count || edge.to >= count)
      return invalid(concat("an edge goes from layer ", edge.from, " to ", edge.to,
                            " but there are ", count, " layers, from 0 on"));
    if (edge.from == edge.to)
      return invalid(
          concat("layer ", quoted(profile.layers[edge.from].id), " needs itself"));
  }
  return refuse_cycle(profile);
}

Result<Profile> make_profile(
    std::vector<Layer> layers,
    const std::vector<std::pair<std::string, std::string>>& edges) {
  Profile profile{std::move(layers), {}};
  Index index;
  for (size_t i = 0; i < profile.layers.size(); ++i)
    index.emplace(profile.layers[i].id, i);
  for (const auto& [from, to] : edges) AIKIDO_TRY(add_edge(profile, index, from, to));
  AIKIDO_TRY(validate(profile));
  return profile;
}

Result<Profile> parse_profile(std::string_view text) {
  struct EdgeLine {
    std::string from, to;
    size_t number;
  };
  Profile profile;
  std::vector<EdgeLine> edges;
  std::vector<size_t> lines;  // line of each layer
  Index index;
  size_t number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const auto line = text.substr(at, end - at);
    at = end + 1;
    ++number;
    const std::string place = concat("line ", number);
    if (trimmed(line).empty()) continue;
    if (line.front() == '\t' || line.front() == ' ') {
      const auto ends = split(line, kSeparator);
      if (ends.size() != 2 || ends[0].empty() || ends[1].empty())
        return invalid(concat(place, ": ", quoted(trimmed(line)),
                              " is no edge; one is <tab><id> -- <id>"));
      edges.push_back({std::string(ends[0]), std::string(ends[1]), number});
      continue;
    }
    auto layer = read_layer(trimmed(line));
    if (!layer) return layer.status().with_context(place);
    if (const auto status = validate_layer(*layer, profile.layers.size() + 1);
        status.has_failed())
      return status.with_context(place);
    const auto [known, is_new] = index.emplace(layer->id, profile.layers.size());
    if (!is_new)
      return invalid(concat(place, ": the id ", quoted(layer->id),
                            " is there already, in line ", lines[known->second]));
    lines.push_back(number);
    profile.layers.push_back(std::move(*layer));
  }
  for (const auto& [from, to, of_edge] : edges)
    if (const auto status = add_edge(profile, index, from, to); status.has_failed())
      return status.with_context(concat("line ", of_edge));
  AIKIDO_TRY(validate(profile));
  return profile;
}

std::string to_text(const Profile& profile) {
  std::string text;
  for (const Layer& layer : profile.layers) {
    text += concat(layer.id, kSeparator, layer.description, kSeparator,
                   "forward_compute_time=", shortest(layer.forward_ms),
                   ", backward_compute_time=", shortest(layer.backward_ms),
                   ", activation_size=", shortest(layer.activation_bytes),
                   ", parameter_size=", shortest(layer.parameter_bytes));
    if (layer.stage >= 0) text += concat(kSeparator, "stage_id=", layer.stage);
    text += '\n';
  }
  for (const Edge& edge : profile.edges)
    text += concat('\t', profile.layers[edge.from].id, kSeparator,
                   profile.layers[edge.to].id, '\n');
  return text;
}

}  // namespace aikido::pipeline
