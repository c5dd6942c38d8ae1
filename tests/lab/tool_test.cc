#include "lab/tool.h"

#include <co2/error.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <csignal>

namespace co2::lab {
namespace {

TEST(Tool, GetsItsInputAndGivesItsOutput) {
  Tool tool{.command = {"/bin/sh", "-c", "cat; echo bad >&2; exit 3"}, .environment = {"PATH=/bin:/usr/bin"}};
  tool.input = "some\nlines\n";
  const ToolResult result = run_tool(tool);
  EXPECT_EQ(result.code, 3);
  EXPECT_EQ(result.output, "some\nlines\n");
  EXPECT_EQ(result.errors, "bad\n");
}

TEST(Tool, IsEndedAfterItsTime) {
  Tool tool{.command = {"/bin/sh", "-c", "sleep 100 & sleep 100"}, .environment = {"PATH=/bin:/usr/bin"}};
  tool.timeout = std::chrono::milliseconds(50);
  EXPECT_EQ(run_tool(tool).code, 128 + SIGKILL);
}

TEST(Tool, SaysWhyItCannotStart) {
  EXPECT_THROW(run_tool({.command = {"/no/such/program"}, .environment = {}}), Error);
  Tool tool{.command = {"/bin/true"}, .environment = {}};
  tool.prepare = [] { return EPERM; };
  EXPECT_THROW(run_tool(tool), Error);
}

TEST(LastLines, AreTheEnd) {
  EXPECT_EQ(last_lines("a\nb\nc\n\n", 2), "b\nc");
  EXPECT_EQ(last_lines("a", 5), "a");
  EXPECT_EQ(last_lines("\na\nb", 5), "a\nb");
  EXPECT_EQ(last_lines("\n \n", 3), "");
  EXPECT_EQ(last_lines("a\nb", 1), "b");
}

}  // namespace
}  // namespace co2::lab
