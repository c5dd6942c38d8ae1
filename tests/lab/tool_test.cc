#include "lab/tool.h"

#include <co2/error.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

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
  const ToolResult result = run_tool(tool);
  EXPECT_EQ(result.code, 128 + SIGKILL);
  EXPECT_EQ(how_it_ended(tool, result), "took longer than 0.05 s");
  tool.timeout = std::chrono::minutes(30);
  EXPECT_EQ(how_it_ended(tool, result), "took longer than 30 min");
  EXPECT_EQ(how_it_ended(tool, {.code = 3}), "ended with exit code 3");
}

TEST(Tool, IsEndedByASignalWithAllThatItStarted) {
  const processes::SignalQueue signals;
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);  // not closed at exec: whoever lives has it
  Tool tool{.command = {"/bin/sh", "-c", "sleep 100 & kill -TERM $PPID; wait"}, .environment = {"PATH=/bin:/usr/bin"}};
  tool.signals = &signals;
  try {
    run_tool(tool);
    ADD_FAILURE() << "it was not stopped";
  } catch (const Stopped& stopped) {
    EXPECT_EQ(stopped.exit_code(), 128 + SIGTERM);
  }
  close(ends[1]);
  pollfd nobody_left{.fd = ends[0], .events = POLLIN, .revents = 0};
  EXPECT_EQ(poll(&nobody_left, 1, 10'000), 1);
  EXPECT_TRUE(nobody_left.revents & POLLHUP);
  close(ends[0]);
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
