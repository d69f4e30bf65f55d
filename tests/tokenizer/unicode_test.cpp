#include "tokenizer/unicode.h"

#include <utf8proc.h>

#include <chrono>

#include "base/utf8.h"
#include "fixtures.h"
#include "tokenizer/nfc.h"

namespace octavo::tokenizer {
namespace {

TEST(Unicode, TablesAgreeWithUtf8procWhereItAssignsTheCodePoint) {
  const CharClasses classes;
  int assigned = 0;
  for (int32_t c = 0; c < 0x110000; ++c) {
    const char* category = utf8proc_category_string(c);
    if (std::string_view(category) == "Cn" || std::string_view(category) == "Cs") continue;
    ++assigned;
    const uint8_t kind = classes.of(static_cast<uint32_t>(c));
    EXPECT_EQ((kind & kLetter) != 0, category[0] == 'L') << std::hex << c;
    EXPECT_EQ((kind & kNumber) != 0, category[0] == 'N') << std::hex << c;
    const bool control_space = (c >= 0x09 && c <= 0x0D) || c == 0x85;
    EXPECT_EQ((kind & kSpace) != 0, category[0] == 'Z' || control_space) << std::hex << c;
  }
  EXPECT_GT(assigned, 280'000);
}

TEST(Unicode, RangesAreSortedAndKnowUnicode16) {
  for (const auto ranges : {letter_ranges(), number_ranges()})
    for (size_t i = 0; i < ranges.size(); ++i) {
      EXPECT_LE(ranges[i].first, ranges[i].last);
      if (i > 0) EXPECT_GT(ranges[i].first, ranges[i - 1].last + 1);
    }
  const CharClasses classes;
  EXPECT_EQ(classes.of(0x105C0), kLetter);  // Todhri, new in 16.0
  EXPECT_EQ(classes.of(0x10D40), kNumber);  // Garay digit zero, new in 16.0
  EXPECT_EQ(classes.of(0x323AF), kLetter);  // beyond the flat table
  EXPECT_EQ(classes.of(0x10FFFF), kOther);
}

TEST(Unicode, FindsTheFirstMalformedByte) {
  const std::string padding(40, 'x');
  for (const std::string_view good : {"", "\x7f", "\xC2\x80", "\xE0\xA0\x80", "\xED\x9F\xBF",
                                      "\xEE\x80\x80", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"})
    EXPECT_EQ(find_invalid_utf8(padding + std::string(good) + padding), std::string::npos);
  for (const std::string_view bad :
       {"\x80", "\xBF", "\xC0\x80", "\xC1\xBF", "\xC2", "\xC2x", "\xE0\x9F\xBF", "\xE1\x80",
        "\xED\xA0\x80", "\xF0\x8F\xBF\xBF", "\xF1\x80\x80", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80",
        "\xFF"}) {
    EXPECT_EQ(find_invalid_utf8(padding + std::string(bad) + padding), padding.size());
    EXPECT_EQ(find_invalid_utf8(padding + std::string(bad)), padding.size());
  }
}

TEST(Unicode, DecodesWhatItEncodes) {
  for (uint32_t c = 0; c < 0x110000; c += c < 0x1000 ? 1 : 37) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    append_utf8(c, text);
    EXPECT_EQ(find_invalid_utf8(text), std::string::npos);
    const CodePoint decoded = decode_utf8(text.data());
    EXPECT_EQ(decoded.value, c);
    EXPECT_EQ(decoded.length, text.size());
  }
}

std::string utf8proc_nfc(const std::string& text) {
  utf8proc_uint8_t* out = nullptr;
  const auto length =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &out,
                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  EXPECT_GE(length, 0);
  std::string result(reinterpret_cast<const char*>(out), static_cast<size_t>(length));
  std::free(out);
  return result;
}

TEST(Nfc, AgreesWithUtf8procOnRandomText) {
  const Nfc nfc;
  std::mt19937 random(1);
  const std::vector<uint32_t> kHard = {'a',    'e',    0xC5,   0xE9,    0x212B, 0x300,  0x301,
                                       0x315,  0x316,  0x323,  0x344,   0x9C7,  0x9BE,  0x1100,
                                       0x1161, 0x11A8, 0xAC00, 0xAC01,  0x1E69, 0x1EBF, 0x2126,
                                       0x3099, 0x304B, 0xFB1D, 0x1D15E, 0x2F800};
  int changed = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string text;
    for (size_t i = random() % 10; i > 0; --i) {
      uint32_t c = random() % 3 ? kHard[random() % kHard.size()] : random() % 0x20000;
      if (c >= 0xD800 && c < 0xE000) c = 'x';
      append_utf8(c, text);
    }
    const std::string wanted = utf8proc_nfc(text);
    EXPECT_EQ(nfc.normalize(text), wanted);
    if (nfc.surely_normal(text)) EXPECT_EQ(text, wanted);
    changed += text != wanted;
  }
  EXPECT_GT(changed, 5'000);
}

TEST(Nfc, EveryCodePointAlone) {
  const Nfc nfc;
  for (uint32_t c = 1; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    append_utf8(c, text);
    const std::string wanted = utf8proc_nfc(text);
    if (nfc.surely_normal(text)) ASSERT_EQ(text, wanted) << std::hex << c;
    ASSERT_EQ(nfc.normalize(text), wanted) << std::hex << c;
  }
}

// utf8proc alone takes the square of the length here: minutes.
TEST(Nfc, ManyMarksInTheWrongOrder) {
  std::string text = "a";
  for (int i = 0; i < 500'000; ++i) text += "\u0315\u0316";
  const auto start = std::chrono::steady_clock::now();
  const std::string normal = Nfc().normalize(text);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  EXPECT_EQ(normal.substr(0, 3), "a\u0316");
  EXPECT_EQ(normal.size(), text.size());
  EXPECT_LT(seconds.count(), 10);
}

}  // namespace
}  // namespace octavo::tokenizer
