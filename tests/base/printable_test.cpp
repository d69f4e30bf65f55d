#include "base/printable.h"

#include <gtest/gtest.h>

namespace octavo {
namespace {

TEST(Printable, EscapesWhatATerminalWouldObey) {
  EXPECT_EQ(printable("plain é 漢"), "plain é 漢");
  EXPECT_EQ(printable(std::string_view("a\0b\x1b[2J\x7f\r\n", 9)), "a\\x00b\\x1b[2J\\x7f\\x0d");
  EXPECT_EQ(printable("\xC2\x9B"
                      "2J"),
            "\\xc2\\x9b2J");
  EXPECT_EQ(printable("\xC2\xA0"), "\xC2\xA0");
  EXPECT_EQ(printable("\xC2"), "\xC2");
}

TEST(Printable, LinesStayWhenTheyMay) {
  EXPECT_EQ(printable("one\n\ttwo\r", 80, true), "one\n\ttwo\\x0d");
  EXPECT_EQ(printable("one\n"), "one\\x0a");
}

TEST(Printable, LongTextIsCutBetweenCharacters) {
  EXPECT_EQ(printable("12345", 5), "12345");
  EXPECT_EQ(printable("123456", 5), "12345…");
  EXPECT_EQ(printable("1234éé", 5), "1234é…");
}

}  // namespace
}  // namespace octavo
