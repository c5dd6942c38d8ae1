#include "lab/network.h"

#include <arpa/inet.h>
#include <co2/error.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>

#include "base/child_process.h"
#include "base/files.h"
#include "lab/link_check.h"
#include "lab/run.h"
#include "lab/tool.h"
#include "processes/signal_queue.h"
#include "processes/worker_environment.h"

namespace co2::lab {
namespace {

Tool tool_for(const std::vector<std::string>& command) {
  return {.command = command, .environment = processes::as_list(processes::own_environment())};
}

/// What another program makes of this kernel, so that a mistake of ours is a failure and not a skip.
bool kernel_allows_namespaces() {
  return run_tool(tool_for({"unshare", "--net", "true"})).code == 0 ||
         run_tool(tool_for({"unshare", "--user", "--map-root-user", "--net", "true"})).code == 0;
}

/// One process for all tests: it leaves the machine's network once.
class World : public testing::Environment {
 public:
  void SetUp() override {
    allowed = kernel_allows_namespaces();
    if (allowed) leave_machine_network();
    if (!allowed) fmt::print("no namespaces here: the kernel does not allow them\n");
  }
  static inline bool allowed = false;
};
const auto* const kWorld = testing::AddGlobalTestEnvironment(new World);

class NetworkTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!World::allowed) GTEST_SKIP() << "no namespaces here";
  }
};

Phase phase_of(const std::string& rates, int hosts) { return parse_rates(rates, hosts)[0].phases[0]; }

/// The nearest of a few tries: other programs may be using the machine's cores.
void expect_rates_within_a_tenth(const Network& network, const Phase& phase) {
  std::vector<LinkCheck> checks;
  for (int tries = 0; tries < 4; ++tries) {
    checks = check_links(network, phase);
    if (std::none_of(checks.begin(), checks.end(), [](const LinkCheck& check) { return check.off(); })) return;
  }
  for (const LinkCheck& check : checks) {
    EXPECT_NEAR(check.measured / check.asked.bits_per_second, 1, 0.1) << check.from << " to " << check.to;
  }
}

std::size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

TEST_F(NetworkTest, HonoursRatesInBothDirections) {
  for (const char* rate : {"10mbit", "100mbit"}) {
    Network network(2);
    const Phase phase = phase_of(rate, 2);
    network.set_rates(phase);
    expect_rates_within_a_tenth(network, phase);
  }
}

TEST_F(NetworkTest, HonoursRatesOfEachHost) {
  Network network(3);
  const Phase phase = phase_of("100mbit:20mbit:unlimited", 3);
  network.set_rates(phase);
  const auto checks = check_links(network, phase);
  ASSERT_EQ(checks.size(), 3U);
  EXPECT_EQ(checks[0].asked.bits_per_second, 20e6);
  EXPECT_EQ(checks[1].asked.bits_per_second, 20e6);
  EXPECT_EQ(checks[2].asked.bits_per_second, 100e6);
  expect_rates_within_a_tenth(network, phase);
}

TEST_F(NetworkTest, ChangesRatesAtAnyTime) {
  Network network(2);
  for (const char* rate : {"50mbit", "10mbit", "unlimited", "20mbit"}) {
    const Phase phase = phase_of(rate, 2);
    network.set_rates(phase);
    if (phase.host(0).unlimited()) {
      EXPECT_GT(check_links(network, phase)[0].measured, 100e6);
    } else {
      expect_rates_within_a_tenth(network, phase);
    }
  }
}

/// From host 0 to host 1, so many that some wait for the link at any time: packets of many segments, as TCP makes them
/// now and then.
class LargePackets {
 public:
  explicit LargePackets(const Network& network)
      : socket_(network.inside(0, [] { return socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0); })) {
    const int segment = 1400;
    setsockopt(socket_.get(), SOL_UDP, UDP_SEGMENT, &segment, sizeof segment);
    thread_ = std::thread([this] { send_all(); });
  }
  ~LargePackets() {
    stop_ = true;
    thread_.join();
  }
  LargePackets(const LargePackets&) = delete;
  LargePackets& operator=(const LargePackets&) = delete;

  int sent() const { return sent_; }

 private:
  void send_all() {
    const std::array<char, 14 * 1400> data{};
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(9);  // nobody listens, nobody needs to
    inet_pton(AF_INET, Network::address(1).c_str(), &address.sin_addr);
    while (!stop_) {
      const ssize_t size = sendto(socket_.get(), data.data(), data.size(), MSG_DONTWAIT,
                                  reinterpret_cast<const sockaddr*>(&address), sizeof address);
      if (size > 0) ++sent_;
      if (size <= 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  Descriptor socket_;
  std::atomic<bool> stop_ = false;
  std::atomic<int> sent_ = 0;
  std::thread thread_;
};

TEST_F(NetworkTest, PacketsThatWaitDoNotBlockALinkThatBecomesSlower) {
  // Such a packet fits into the bucket of the first rate, but not into that of the second.
  for (const auto& [before, after] : {std::pair("100mbit", "10mbit"), std::pair("45mbit", "10mbit")}) {
    Network network(2);
    network.set_rates(phase_of(before, 2));
    const Phase slower = phase_of(after, 2);
    {
      const LargePackets packets(network);
      while (packets.sent() < 10) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      network.set_rates(slower);
    }
    EXPECT_NO_THROW(check_links(network, slower)) << before << " to " << after;
  }
}

TEST_F(NetworkTest, AHostKnowsItsNameAndSeesOnlyItsOwnInterface) {
  const Network network(2);
  Tool tool = tool_for({"/bin/sh", "-c", "uname -n; ip -o link | wc -l; ip -o -4 addr show eth0"});
  tool.prepare = [&] { return network.enter(1); };
  const ToolResult result = run_tool(tool);
  EXPECT_EQ(result.code, 0) << result.errors;
  EXPECT_TRUE(result.output.starts_with("10.0.0.2\n2\n")) << result.output;
  EXPECT_NE(result.output.find("inet 10.0.0.2/16"), std::string::npos) << result.output;
}

TEST_F(NetworkTest, HasAnAddressForEveryHost) {
  std::vector<std::string> addresses;
  for (int host = 0; host < 600; ++host) addresses.push_back(Network::address(host));
  std::sort(addresses.begin(), addresses.end());
  EXPECT_EQ(std::unique(addresses.begin(), addresses.end()), addresses.end());
}

TEST_F(NetworkTest, LeavesNothingOpen) {
  const std::size_t before = open_descriptors();
  { const Network network(4); }
  EXPECT_EQ(open_descriptors(), before);
}

class RunTest : public NetworkTest {
 protected:
  RunEnd run(
      const std::string& script, const std::string& rates = "unlimited", const std::function<void()>& tick = [] {}) {
    RunSpec spec;
    spec.command = {"/bin/sh", "-c", script};
    spec.environment = processes::own_environment();
    spec.environment["OUT"] = folder_.path();
    spec.folder = folder_.path();
    spec.time_limit = time_limit_;
    return execute(spec, network_, parse_rates(rates, 2)[0], signals_, tick);
  }
  std::string log(int rank) const { return read_file(folder_.path() / fmt::format("worker-{}.log", rank)); }

  void expect_nobody_left() const {
    for (int i = 0; i < 2000 && !network_.processes().empty(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_TRUE(network_.processes().empty());
  }

  const TemporaryFolder folder_{testing::TempDir()};
  Network network_{World::allowed ? 2 : 0};
  const processes::SignalQueue signals_;
  std::chrono::seconds time_limit_{100};
};

TEST_F(RunTest, TellsEveryWorkerItsPlace) {
  const RunEnd end = run("echo $RANK of $WORLD_SIZE at $(uname -n), $MASTER_ADDR:$MASTER_PORT by $GLOO_SOCKET_IFNAME");
  EXPECT_EQ(end.kind, RunEnd::Kind::kDone) << end.why;
  EXPECT_EQ(log(0), "0 of 2 at 10.0.0.1, 10.0.0.1:29500 by eth0\n");
  EXPECT_EQ(log(1), "1 of 2 at 10.0.0.2, 10.0.0.1:29500 by eth0\n");
}

TEST_F(RunTest, EndsTheOthersWhenOneFails) {
  const RunEnd end = run("test $RANK = 0 && exec sleep 1000; echo too bad >&2; exit 3");
  EXPECT_EQ(end.kind, RunEnd::Kind::kFailed);
  EXPECT_NE(end.why.find("worker 1 ended with exit code 3"), std::string::npos) << end.why;
  EXPECT_NE(end.why.find("too bad"), std::string::npos) << end.why;
  expect_nobody_left();
}

TEST_F(RunTest, BlamesTheOneThatWasKilled) {
  // Both end during the same tick.
  const RunEnd end =
      run("until [ -e $OUT/go ]; do sleep 0.02; done; test $RANK = 0 && exit 3; kill -KILL $$", "unlimited", [this] {
        std::ofstream(folder_.path() / "go");
        expect_nobody_left();
      });
  EXPECT_EQ(end.kind, RunEnd::Kind::kFailed);
  EXPECT_NE(end.why.find("worker 1 was killed by signal 9"), std::string::npos) << end.why;
}

TEST_F(RunTest, IsWorthNothingOnceItWasSuspended) {
  const std::string status = fmt::format("/proc/{}/status", getpid());
  run_tool(tool_for({"/bin/sh", "-c",
                     fmt::format("while [ -e {0} ]; do grep -q 'State:.T' {0} && exec kill -CONT {1}; sleep 0.05; done "
                                 "> /dev/null 2>&1 &",
                                 status, getpid())}));
  bool asked = false;
  const RunEnd end = run("exec sleep 1000", "unlimited", [&] {
    if (!std::exchange(asked, true)) kill(getpid(), SIGTSTP);
  });
  EXPECT_EQ(end.kind, RunEnd::Kind::kFailed);
  EXPECT_NE(end.why.find("suspended"), std::string::npos) << end.why;
  expect_nobody_left();
}

TEST_F(RunTest, EndsWhatAWorkerLeftBehind) {
  const RunEnd end = run("setsid sleep 1000 > /dev/null 2>&1 & exit 0");
  EXPECT_EQ(end.kind, RunEnd::Kind::kDone) << end.why;
  expect_nobody_left();
}

TEST_F(RunTest, IsGivenUpAfterItsTime) {
  time_limit_ = std::chrono::seconds(1);
  const RunEnd end = run("exec sleep 1000");
  EXPECT_EQ(end.kind, RunEnd::Kind::kFailed);
  EXPECT_NE(end.why.find("longer than 1 s"), std::string::npos) << end.why;
  expect_nobody_left();
}

TEST_F(RunTest, StopsAtASignal) {
  const RunEnd end = run("exec sleep 1000", "unlimited", [] { kill(getpid(), SIGINT); });
  EXPECT_EQ(end.kind, RunEnd::Kind::kStopped);
  EXPECT_EQ(end.signal, SIGINT);
  expect_nobody_left();
  while (signals_.next()) {  // the last tick's
  }
}

TEST_F(RunTest, ChangesTheRatesOnTheClockOfItsSteps) {
  // They end once they have seen a limit come and go.
  const RunEnd end =
      run("sleep 0.5; test $RANK = 0 && echo '{\"step\":1,\"wall_seconds\":7}' > $OUT/metrics.jsonl; "
          "limited() { tc qdisc show dev eth0 | grep -q tbf; }; "
          "until limited; do sleep 0.02; done; while limited; do sleep 0.02; done",
          "100mbit/300ms/10mbit:20mbit/300ms/unlimited");
  EXPECT_EQ(end.kind, RunEnd::Kind::kDone) << end.why;
  ASSERT_EQ(end.changes.size(), 2U);
  EXPECT_GE(end.changes[0].wall_seconds, 7.3);
  EXPECT_GE(end.changes[1].wall_seconds, 7.6);
  EXPECT_EQ(end.changes[1].phase, 2U);
}

}  // namespace
}  // namespace co2::lab
