// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "base/check.h"

#include <cerrno>
#include <cstring>

namespace aikido {

void throw_internal(const char* file, int line, const char* condition,
                    const std::string& values) {
  throw InternalError(concat("aikido defect at ", file, ":", line, ": ", condition,
                             " does not hold", values.empty() ? "" : ", ", values,
                             ". Please report it with the log of this rank."));
}

std::string describe_errno(int error) {
  const char* name = strerrorname_np(error);
  const char* text = strerrordesc_np(error);
  return concat(name ? name : "errno", " (", text ? text : std::to_string(error), ")",
                error == EMFILE ? "; raise the limit of open files (ulimit -n)" : "");
}

}  // namespace aikido
