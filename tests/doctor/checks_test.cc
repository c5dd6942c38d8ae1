#include "doctor/checks.h"

#include <gtest/gtest.h>

#include <limits>

namespace co2::doctor {
namespace {

WorkerFacts worker(int rank, const std::string& machine, std::vector<int> cores) {
  WorkerFacts facts;
  facts.rank = rank;
  facts.host = "host-" + machine;
  facts.machine = machine;
  facts.processor = "a processor";
  facts.co2_version = "1";
  facts.torch_version = "2";
  facts.blas = "mkl";
  facts.cores = std::move(cores);
  facts.memory_available = 8e9;
  facts.step.median = 0.1;
  facts.product_flops = 80e9;
  facts.multiply_add_flops = 100e9;
  facts.interface = {.name = "eth0", .address = "10.0.0.1"};
  return facts;
}

/// Two machines of two cores, with a worker on each core.
std::vector<WorkerFacts> healthy() {
  return {worker(0, "a", {0}), worker(1, "a", {1}), worker(2, "b", {0}), worker(3, "b", {1})};
}

NetworkFacts network(double bits_per_second) {
  NetworkFacts facts;
  facts.latency = 1e-4;
  facts.transfers = {{1 << 20, 0.1, bits_per_second}};
  facts.model_seconds = 1;
  facts.model_cycles = 0.1;
  return facts;
}

void expect_level(const Check& check, Level level, const std::vector<std::string>& parts = {}) {
  EXPECT_EQ(check.level, level) << check.finding;
  EXPECT_FALSE(check.finding.empty());
  EXPECT_EQ(check.advice.empty(), level == Level::kOk);
  for (const std::string& part : parts) {
    EXPECT_NE((check.finding + " " + check.advice).find(part), std::string::npos) << check.finding;
  }
}

TEST(Checks, NothingIsWrongWithAHealthyCluster) {
  const auto workers = healthy();
  for (const Check& check :
       {check_threads(workers), check_cores(workers), check_blas(workers), check_interface(workers, network(1e9)),
        check_ports(workers, {}), check_clocks(workers, {{0, 0, 0}, {2, 0.01, 0.001}}), check_versions(workers),
        check_speed(workers), check_memory(workers, 1e9), check_room(workers, 1e9)}) {
    expect_level(check, Level::kOk);
  }
}

TEST(Checks, NothingIsWrongWithASingleWorker) {
  std::vector<WorkerFacts> alone = {worker(0, "a", {0, 1})};
  alone[0].threads = 2;
  alone[0].interface = {};
  for (const Check& check : {check_threads(alone), check_cores(alone), check_interface(alone, {}),
                             check_ports(alone, {}), check_clocks(alone, {}), check_speed(alone)}) {
    expect_level(check, Level::kOk);
  }
}

TEST(Checks, ThreadsOfAllWorkersOfOneMachineAreAddedUp) {
  auto workers = healthy();
  workers[3].threads = 2;  // three threads on two cores, on the second machine
  expect_level(check_threads(workers), Level::kWarn,
               {"host-b", "3 threads", "2 cores", "--threads", "OMP_NUM_THREADS"});
  workers[3].cores = {1, 2};
  expect_level(check_threads(workers), Level::kOk);
}

TEST(Checks, AContainersQuotaCountsAsItsCores) {
  std::vector<WorkerFacts> workers = {worker(0, "a", {0, 1, 2, 3})};
  workers[0].threads = 4;
  expect_level(check_threads(workers), Level::kOk);
  workers[0].core_quota = 1.5;
  expect_level(check_threads(workers), Level::kWarn, {"4 threads", "1.5 cores"});
}

TEST(Checks, SharedCoresAreNamed) {
  auto workers = healthy();
  workers[2].cores = {0, 1, 2, 3};
  workers[3].cores = {2, 3, 4};
  expect_level(check_cores(workers), Level::kWarn, {"ranks 2 and 3", "host-b", "(2-3)", "taskset"});
  workers[2].cores = workers[3].cores = {0};
  expect_level(check_cores(workers), Level::kWarn, {"one worker per core"});
  workers[3].machine = "c";  // the same core of another machine is another core
  expect_level(check_cores(workers), Level::kOk);
}

TEST(Checks, ASlowMatrixProductIsFoundWhereverItIs) {
  auto workers = healthy();
  workers[2].product_flops = 40e9;
  workers[2].blas = "open";
  expect_level(check_blas(workers), Level::kWarn, {"rank 2", "40 %", "open", "OPENBLAS_CORETYPE"});
  workers[2].product_flops = 52e9;
  expect_level(check_blas(workers), Level::kOk);
  workers[2].product_flops = std::numeric_limits<double>::quiet_NaN();
  workers[2].multiply_add_flops = 0;
  expect_level(check_blas(workers), Level::kWarn);
}

TEST(Checks, ThreadsThatCompeteAreNotBlamedOnTheLibrary) {
  auto workers = healthy();
  workers[0].product_flops = 10e9;
  workers[0].threads = 4;
  expect_level(check_blas(workers), Level::kOk, {"not judged"});
}

TEST(Checks, TheLoopbackIsFineOnlyOnOneMachine) {
  auto workers = healthy();
  for (WorkerFacts& w : workers) w.interface = {.name = "lo", .address = "127.0.0.1", .loopback = true};
  expect_level(check_interface(workers, network(1e9)), Level::kWarn, {"loopback", "--interface"});
  workers[0].interface.physical = "eth7";
  expect_level(check_interface(workers, network(1e9)), Level::kWarn, {"--interface eth7"});
  workers.resize(2);
  expect_level(check_interface(workers, network(1e9)), Level::kOk);
}

TEST(Checks, ABridgeIsSuspiciousIfThereIsHardware) {
  auto workers = healthy();
  workers[1].interface = {.name = "docker0", .address = "172.17.0.1", .bridge = true, .physical = "eth0"};
  expect_level(check_interface(workers, network(1e9)), Level::kWarn, {"rank 1", "docker0", "--interface eth0"});
  workers[1].interface.physical = "";  // inside a container there may be nothing else
  expect_level(check_interface(workers, network(1e9)), Level::kOk);
}

TEST(Checks, ALinkFarBelowItsSpeedIsReported) {
  auto workers = healthy();
  for (WorkerFacts& w : workers) w.interface.bits_per_second = 10e9;
  expect_level(check_interface(workers, network(0.9e9)), Level::kWarn, {"10 Gbit/s", "900 Mbit/s"});
  expect_level(check_interface(workers, network(4e9)), Level::kOk);
  NetworkFacts busy = network(0.9e9);
  busy.model_cycles = 0.95;  // the processor can't send faster
  expect_level(check_interface(workers, busy), Level::kOk);
}

TEST(Checks, AWayThatFailsIsAFailureWithBothEnds) {
  const auto workers = healthy();
  const Check check = check_ports(workers, {{1, 3, "10.0.0.4:40001", "no answer"}, {2, 3, "x", "no answer"}});
  expect_level(check, Level::kFail,
               {"rank 1 on host-a can't reach rank 3 on host-b at 10.0.0.4:40001", "no answer", "2 of 12", "firewall"});
  EXPECT_TRUE(any_failed({check_threads(workers), check}));
  EXPECT_FALSE(any_failed({check_threads(workers)}));
}

TEST(Checks, OnlyACertainSkewIsReported) {
  const auto workers = healthy();
  expect_level(check_clocks(workers, {{0, 0, 0}, {3, -3.5, 0.1}}), Level::kWarn, {"rank 3", "3.4 s behind", "NTP"});
  expect_level(check_clocks(workers, {{0, 0, 0}, {3, 2.5, 0.1}}), Level::kWarn, {"2.4 s ahead"});
  expect_level(check_clocks(workers, {{0, 0, 0}, {3, 3.5, 3}}), Level::kOk);  // a round trip of three seconds
}

TEST(Checks, DifferencesBetweenHostsAreReported) {
  auto workers = healthy();
  workers[3].processor = "another";
  expect_level(check_versions(workers), Level::kWarn, {"a processor; another"});
  workers[1].torch_version = "2.1";
  expect_level(check_versions(workers), Level::kWarn, {"LibTorch: 2, 2.1"});
  workers[2].co2_version = "0.9";
  expect_level(check_versions(workers), Level::kWarn, {"co2: 0.9, 1"});
}

TEST(Checks, ASlowWorkerIsNamed) {
  auto workers = healthy();
  workers[2].step.median = 0.12;
  expect_level(check_speed(workers), Level::kOk);
  workers[2].step.median = 0.3;
  expect_level(check_speed(workers), Level::kWarn, {"rank 2 on host-b", "3.00 times"});
  for (WorkerFacts& w : workers) w.step.median = 0;
  expect_level(check_speed(workers), Level::kOk);
}

TEST(Checks, MemoryIsForAllWorkersOfAMachineTogether) {
  auto workers = healthy();
  expect_level(check_memory(workers, 3.5e9), Level::kOk);
  expect_level(check_memory(workers, 4.5e9), Level::kWarn, {"2 workers of 4.5 GB need 9.0 GB", "8.0 GB available"});
  workers[3].memory_available = 1e9;  // the tightest one counts
  expect_level(check_memory(workers, 1e9), Level::kWarn, {"host-b", "take a smaller --model or --batch"});
  expect_level(check_memory(workers, 1e9, {"--pixels"}), Level::kWarn, {"smaller --model, --batch or --pixels"});
  expect_level(check_room(workers, 0.4e9), Level::kOk);
  expect_level(check_room(workers, 0.6e9), Level::kFail, {"does not fit"});
  for (WorkerFacts& w : workers) w.memory_available = 0;  // unknown
  expect_level(check_memory(workers, 1e12), Level::kOk);
  expect_level(check_room(workers, 1e12), Level::kOk);
  expect_level(check_memory(healthy(), 0), Level::kOk);
}

TEST(Checks, ContainersOfOneMachineHaveLimitsOfTheirOwn) {
  // Two pods of 8 GB with a worker each, on a machine of 16.
  std::vector<WorkerFacts> pods = {worker(0, "a", {0}), worker(1, "a", {1})};
  pods[0].host = "pod-0";
  pods[1].host = "pod-1";
  for (WorkerFacts& w : pods) {
    w.memory_available = 16e9;
    w.container_memory = 8e9;
  }
  expect_level(check_room(pods, 5e9), Level::kOk);
  expect_level(check_memory(pods, 5e9), Level::kOk);
  pods[1].container_memory = 4e9;
  expect_level(check_memory(pods, 5e9), Level::kWarn, {"1 worker needs 5.0 GB", "the container pod-1 has 4.0 GB"});
  expect_level(check_room(pods, 5e9), Level::kFail, {"pod-1"});
  pods[1].container_memory = 8e9;
  for (WorkerFacts& w : pods) w.memory_available = 9e9;  // limits promise more than the machine has
  expect_level(check_memory(pods, 5e9), Level::kWarn, {"2 workers of 5.0 GB need 10.0 GB", "the machine of pod-0"});
  // Both in one pod.
  for (WorkerFacts& w : pods) w.memory_available = 16e9, w.host = "pod-0";
  expect_level(check_memory(pods, 5e9), Level::kWarn, {"2 workers", "the container pod-0 has 8.0 GB"});
  for (WorkerFacts& w : pods) w.memory_available = 0;  // the machine's is not known, the limit is
  expect_level(check_memory(pods, 5e9), Level::kWarn, {"the container pod-0"});
}

TEST(Checks, ACoreIsToSpareIfThreadsFillNeitherAWorkersCoresNorItsMachines) {
  std::vector<WorkerFacts> workers = {worker(0, "a", {0, 1}), worker(1, "a", {2, 3})};
  EXPECT_TRUE(core_to_spare(workers)) << "pinned to two cores each, one thread each";
  workers[1].threads = 2;
  EXPECT_FALSE(core_to_spare(workers)) << "rank 1 has none";
  workers = {worker(0, "a", {0, 1}), worker(1, "a", {0, 1})};
  EXPECT_FALSE(core_to_spare(workers)) << "two threads on the two cores that they share";
  workers = {worker(0, "a", {0, 1, 2}), worker(1, "a", {0, 1, 2})};
  EXPECT_TRUE(core_to_spare(workers));
  for (WorkerFacts& w : workers) w.core_quota = 2;
  EXPECT_FALSE(core_to_spare(workers)) << "a container that may use two cores";
  EXPECT_FALSE(core_to_spare(healthy()));
}

}  // namespace
}  // namespace co2::doctor
