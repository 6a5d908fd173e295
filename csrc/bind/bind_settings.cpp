// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include <pybind11/stl.h>

#include <cstdlib>

#include "base/settings.h"
#include "bind/named_types.h"
#include "bind/register.h"
#include "c10d/common/error.h"

namespace aikido::bind {
namespace {

namespace py = pybind11;

constexpr char kSettingRow[] = "aikido_torch._rows.SettingRow";
using SettingRow = Named<py::dict, kSettingRow>;

// In the order of the table.
constexpr char kResolvedSettings[] = "dict[str, tuple[int | str, str]]";
using ResolvedDict = Named<py::dict, kResolvedSettings>;

std::optional<std::string> from_environment(const std::string& name) {
  const char* text = std::getenv(name.c_str());
  if (text == nullptr) return std::nullopt;
  return std::string(text);
}

py::object to_python(const SettingSpec& spec, const Settings& settings) {
  const std::string text = spec.value(settings);
  return spec.is_number() ? py::object(py::int_(std::stoll(text)))
                          : py::object(py::str(text));
}

std::vector<SettingRow> table() {
  std::vector<SettingRow> rows;
  for (const SettingSpec& spec : settings_table()) {
    SettingRow row;
    row["name"] = spec.name;
    row["option"] = spec.option();
    row["variable"] = spec.variable();
    row["default"] = to_python(spec, Settings{});
    row["minimum"] = spec.is_number() ? py::object(py::int_(spec.minimum)) : py::none();
    row["maximum"] = spec.is_number() ? py::object(py::int_(spec.maximum)) : py::none();
    row["range"] = spec.range();
    row["agreed"] = spec.is_agreed;
    row["help"] = spec.help;
    rows.push_back(row);
  }
  return rows;
}

ResolvedDict resolve(const std::map<std::string, std::string>& options) {
  auto resolved = resolve_settings(options, from_environment);
  adapter::raise_if_failed(resolved.status());
  ResolvedDict values;
  for (const SettingSpec& spec : settings_table()) {
    constexpr const char* kSources[] = {"default", "environment", "option"};
    const auto source = static_cast<size_t>(resolved->sources.at(spec.option()));
    values[spec.option().c_str()] =
        py::make_tuple(to_python(spec, resolved->values), kSources[source]);
  }
  return values;
}

}  // namespace

void register_settings(py::module_& m) {
  m.def("settings_table", &table,
        "All settings: name, option, variable, default, range.");
  m.def("resolve_settings", &resolve, py::arg("options"),
        "Value and source of each setting, from the environment and from options as "
        "text. Raises ConfigError.");
}

}  // namespace aikido::bind
