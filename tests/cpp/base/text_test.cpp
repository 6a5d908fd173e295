// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "base/text.h"

#include "harness/catch.h"

using aikido::printable;

TEST_CASE("text that can be printed stays as it is") {
  for (const std::string text :
       {"", "rank 1 is lost;\nlook at its log",
        "Gr\xc3\xbc\xc3\x9f"
        "e",
        "\xe6\x97\xa5\xe6\x9c\xac", "\xf0\x9f\x90\x8c", "\xf4\x8f\xbf\xbf"}) {
    CHECK(printable(text) == text);
  }
}

TEST_CASE("bytes that are not text become question marks") {
  CHECK(printable("a\x1b[31mb\r\t") == "a?[31mb??");
  CHECK(printable(std::string(2, '\0')) == "??");
  CHECK(printable("\xff\xfe x") == "?? x");
  CHECK(printable("cut \xe6\x97") == "cut ??");    // incomplete sequence
  CHECK(printable("\xc0\xaf") == "??");            // overlong encoding
  CHECK(printable("\xe0\x80\xaf") == "???");       // overlong encoding
  CHECK(printable("\xed\xa0\x80") == "???");       // a surrogate
  CHECK(printable("\xf4\x90\x80\x80") == "????");  // beyond U+10FFFF
  CHECK(printable("\xc3(") == "?(");
}
