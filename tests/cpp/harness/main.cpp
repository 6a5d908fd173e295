// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
// The runner of every suite. Catch2 v3 brings its own main, v2 wants one defined.
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_session.hpp>
int main(int argc, char** argv) {
  return Catch::Session().run(argc, argv);
}
#else
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
#endif
