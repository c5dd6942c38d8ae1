#include "processes/stop_signal.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

namespace co2::processes {
namespace {

TEST(StopSignal, FirstSignalIsAWish) {
  const StopSignal stop;
  EXPECT_FALSE(stop.requested());
  raise(SIGTERM);
  raise(SIGINT);  // right after: the same wish
  EXPECT_TRUE(stop.requested());
  EXPECT_EQ(stop.signal(), SIGTERM);
}

TEST(StopSignalDeathTest, SecondSignalEndsTheProcess) {
  EXPECT_EXIT(
      {
        const StopSignal stop;
        raise(SIGINT);
        usleep(400'000);
        raise(SIGINT);
      },
      testing::KilledBySignal(SIGINT), "");
}

TEST(StopSignal, FormerHandlersComeBack) {
  struct sigaction before {};
  sigaction(SIGINT, nullptr, &before);
  { const StopSignal stop; }
  struct sigaction after {};
  sigaction(SIGINT, nullptr, &after);
  EXPECT_EQ(before.sa_handler, after.sa_handler);
}

TEST(StopSignal, IgnoredSignalsStayIgnored) {
  const auto before = signal(SIGHUP, SIG_IGN);
  {
    const StopSignal stop;
    raise(SIGHUP);
    EXPECT_FALSE(stop.requested());
  }
  signal(SIGHUP, before);
}

}  // namespace
}  // namespace co2::processes
