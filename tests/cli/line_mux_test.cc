#include "processes/line_mux.h"

#include <gtest/gtest.h>

#include <random>

namespace co2::processes {
namespace {

std::string prefixed(const std::vector<std::string>& pieces, std::size_t limit = 1 << 16) {
  LinePrefixer lines("[1] ", limit);
  std::string out;
  for (const std::string& piece : pieces) lines.feed(piece, out);
  lines.finish(out);
  return out;
}

TEST(LinePrefixer, PrefixesEveryLine) {
  EXPECT_EQ(prefixed({"a\nb\n"}), "[1] a\n[1] b\n");
  EXPECT_EQ(prefixed({"\n\n"}), "[1] \n[1] \n");
  EXPECT_EQ(prefixed({""}), "");
}

TEST(LinePrefixer, LastLineWithoutNewlineIsNotLost) { EXPECT_EQ(prefixed({"a\nb"}), "[1] a\n[1] b\n"); }

TEST(LinePrefixer, CarriageReturnsEndLines) {
  EXPECT_EQ(prefixed({"a\r\nb\r\n"}), "[1] a\n[1] b\n");
  EXPECT_EQ(prefixed({"\r10 %\r20 %\rdone\n"}), "[1] 10 %\n[1] 20 %\n[1] done\n");
  EXPECT_EQ(prefixed({"\r\n"}), "[1] \n");
  EXPECT_EQ(prefixed({"a\r\n\r\nb"}), "[1] a\n[1] \n[1] b\n");
}

TEST(LinePrefixer, BytesAreNotInterpreted) {
  const std::string bytes("\0\xFF\xC3\x1B[0m", 7);
  EXPECT_EQ(prefixed({bytes + "\n"}), "[1] " + bytes + "\n");
}

TEST(LinePrefixer, LongLinesAreBroken) {
  EXPECT_EQ(prefixed({"abcdefgh\n"}, 3), "[1] abc\n[1] def\n[1] gh\n");
  EXPECT_EQ(prefixed({std::string(1000, 'x')}, 400).size(), 1000U + 3 * 5);
}

TEST(LinePrefixer, ItDoesNotMatterHowTheBytesArrive) {
  const std::string alphabet("ab\r\n\0", 5);
  std::mt19937 random(7);
  for (int round = 0; round < 500; ++round) {
    std::string text;
    for (int i = 0; i < 40; ++i) text += alphabet[random() % alphabet.size()];
    std::vector<std::string> pieces;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t size = 1 + random() % 5;
      pieces.push_back(text.substr(at, size));
      at += size;
    }
    EXPECT_EQ(prefixed(pieces), prefixed({text}));
  }
}

}  // namespace
}  // namespace co2::processes
