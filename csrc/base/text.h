// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Makes text from other processes safe for logs and for Python. Pure; any thread.

#include <string>
#include <string_view>

namespace aikido {

// `text` with '?' for each byte that is no part of valid UTF-8, and for control
// characters but the new line.
std::string printable(std::string_view text);

// printable() in quotes, for a sentence about an argument of a user: its first 60
// bytes, and "..." if it is longer.
std::string quoted(std::string_view text);

}  // namespace aikido
