#include "processes/worker_group.h"

#include <arpa/inet.h>
#include <co2/error.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/cores.h"
#include "processes/worker_environment.h"

namespace co2::processes {
namespace {

class WorkerGroup : public testing::Test {
 protected:
  WorkerGroup() {
    std::string pattern = std::filesystem::temp_directory_path() / "co2-workers-XXXXXX";
    folder_ = mkdtemp(pattern.data());
    setenv("TEST_FOLDER", folder_.c_str(), 1);
  }
  ~WorkerGroup() override {
    unsetenv("TEST_FOLDER");
    std::filesystem::remove_all(folder_);
    // Whatever happened, nothing that the group started is left.
    EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
    EXPECT_EQ(errno, ECHILD);
  }

  static WorkerGroupOptions shell(int workers, const std::string& script) {
    WorkerGroupOptions options;
    options.command = {"sh", "-c", script};
    options.workers = workers;
    options.grace = std::chrono::milliseconds(500);
    return options;
  }
  std::string read(const std::string& name) const {
    std::ifstream file(folder_ / name);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::filesystem::path folder_;
};

bool alive(pid_t pid) { return kill(pid, 0) == 0; }

TEST_F(WorkerGroup, EveryWorkerKnowsItsPlace) {
  EXPECT_EQ(run_worker_group(shell(3,
                                   "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR $CO2_LAUNCHER "
                                   "> $TEST_FOLDER/$RANK; echo $MASTER_PORT >> $TEST_FOLDER/port")),
            0);
  for (const char* rank : {"0", "1", "2"}) {
    EXPECT_EQ(read(rank), std::string(rank) + " 3 " + rank + " 3 127.0.0.1 co2\n");
  }
  std::istringstream ports(read("port"));
  int first = 0;
  int other = 0;
  ports >> first;
  EXPECT_GT(first, 0);
  while (ports >> other) EXPECT_EQ(other, first);
}

TEST_F(WorkerGroup, OnlyRankZeroInheritsTheSocket) {
  const std::string script =
      "n=${CO2_MASTER_LISTEN_FD:-none}; ls -l /proc/$$/fd | grep -c socket: > $TEST_FOLDER/$RANK; "
      "echo $n > $TEST_FOLDER/fd$RANK";
  EXPECT_EQ(run_worker_group(shell(2, script)), 0);
  EXPECT_NE(read("fd0"), "none\n");
  EXPECT_EQ(read("fd1"), "none\n");
  EXPECT_EQ(std::stoi(read("0")), std::stoi(read("1")) + 1);
}

TEST_F(WorkerGroup, FirstFailureIsReturnedAndEndsTheOthers) {
  // Rank 0 would go on for longer than the test may take; its own child must go too.
  const std::string script =
      "if [ $RANK = 1 ]; then while [ ! -s $TEST_FOLDER/pid ]; do sleep 0.02; done; exit 7; fi; "
      "sleep 1000 & echo $! > $TEST_FOLDER/pid; wait";
  EXPECT_EQ(run_worker_group(shell(2, script)), 7);
  EXPECT_FALSE(alive(std::stoi(read("pid"))));
}

TEST_F(WorkerGroup, AWorkerThatIgnoresSigtermIsKilled) {
  const std::string script =
      "if [ $RANK = 1 ]; then while [ ! -e $TEST_FOLDER/ready ]; do sleep 0.02; done; exit 3; fi; "
      "trap '' TERM; touch $TEST_FOLDER/ready; while true; do sleep 0.05; done";
  EXPECT_EQ(run_worker_group(shell(2, script)), 3);
}

TEST_F(WorkerGroup, AWorkerMaySaveBeforeItEnds) {
  // The wrapper shell dies of SIGTERM at once; the program inside it takes its time.
  const std::string script =
      "if [ $RANK = 1 ]; then while [ ! -e $TEST_FOLDER/ready ]; do sleep 0.02; done; exit 3; fi; "
      "sh -c 'trap \"sleep 0.2; echo saved > $TEST_FOLDER/saved; exit 0\" TERM; touch $TEST_FOLDER/ready; "
      "while true; do sleep 0.02; done'; true";
  auto options = shell(2, script);
  options.grace = std::chrono::seconds(20);
  EXPECT_EQ(run_worker_group(options), 3);
  EXPECT_EQ(read("saved"), "saved\n");
}

TEST_F(WorkerGroup, DeathBySignalIs128PlusSignal) {
  EXPECT_EQ(run_worker_group(shell(1, "kill -9 $$")), 137);
  EXPECT_EQ(run_worker_group(shell(1, "kill -SEGV $$")), 139);
}

TEST_F(WorkerGroup, MissingProgramIs127) {
  WorkerGroupOptions options;
  options.command = {"no-such-program-anywhere"};
  options.workers = 2;
  try {
    run_worker_group(options);
    FAIL() << "started";
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), 127);
    EXPECT_NE(std::string(error.what()).find("no-such-program-anywhere"), std::string::npos);
  }
  options.command = {"/"};
  try {
    run_worker_group(options);
    FAIL() << "started";
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), 126);
  }
}

TEST_F(WorkerGroup, LeftoversOfAWorkerThatSucceededAreEnded) {
  EXPECT_EQ(run_worker_group(shell(1, "sleep 1000 & echo $! > $TEST_FOLDER/pid; exit 0")), 0);
  EXPECT_FALSE(alive(std::stoi(read("pid"))));
}

TEST_F(WorkerGroup, PortInUseIsNamed) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(listen(listener, 1), 0);
  socklen_t size = sizeof address;
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  auto options = shell(1, "exit 0");
  options.port = ntohs(address.sin_port);
  try {
    run_worker_group(options);
    ADD_FAILURE() << "started";
  } catch (const ClusterError& error) {
    EXPECT_NE(std::string(error.what()).find(std::to_string(options.port)), std::string::npos) << error.what();
  }
  close(listener);
  EXPECT_EQ(run_worker_group(options), 0);
}

TEST_F(WorkerGroup, APortThatIsHeldCanStillBeListenedOn) {
  // What a program does that does not know about the socket it inherited: PyTorch's store, for one.
  const BoundPort held("127.0.0.1", 0);
  const int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  setsockopt(server, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  address.sin_port = htons(static_cast<std::uint16_t>(held.port()));
  EXPECT_EQ(bind(server, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(listen(server, 1), 0);
  close(server);
  EXPECT_EQ(listen(held.fd(), 1), 0);
}

TEST_F(WorkerGroup, ThreadsOfTheUserAreRespected) {
  const std::string script = "echo $OMP_NUM_THREADS/$MKL_NUM_THREADS > $TEST_FOLDER/threads";
  unsetenv("OMP_NUM_THREADS");
  unsetenv("MKL_NUM_THREADS");
  EXPECT_EQ(run_worker_group(shell(1, script)), 0);
  const std::string own = std::to_string(usable_cores().size());
  EXPECT_EQ(read("threads"), own + "/" + own + "\n");
  setenv("OMP_NUM_THREADS", "5", 1);
  EXPECT_EQ(run_worker_group(shell(1, script)), 0);
  EXPECT_EQ(read("threads"), "5/\n");
  auto options = shell(1, script);
  options.threads = 3;
  EXPECT_EQ(run_worker_group(options), 0);
  EXPECT_EQ(read("threads"), "3/3\n");
  unsetenv("OMP_NUM_THREADS");
}

TEST_F(WorkerGroup, WorkersArePinnedToTheCoresTheyAreTold) {
  const auto cores = usable_cores();
  const int workers = static_cast<int>(cores.size()) + 1;  // one more than there are cores
  EXPECT_EQ(run_worker_group(shell(workers,
                                   "echo $CO2_CORES > $TEST_FOLDER/told$RANK; "
                                   "grep Cpus_allowed_list /proc/self/status | cut -f2 > $TEST_FOLDER/is$RANK")),
            0);
  for (int rank = 0; rank < workers; ++rank) {
    EXPECT_EQ(read("told" + std::to_string(rank)), format_cores({cores[rank % cores.size()]}) + "\n");
    EXPECT_EQ(read("is" + std::to_string(rank)), read("told" + std::to_string(rank)));
  }
}

TEST_F(WorkerGroup, SignalMaskAndHandlersAreAsBefore) {
  sigset_t before;
  sigprocmask(SIG_SETMASK, nullptr, &before);
  EXPECT_EQ(run_worker_group(shell(1, "exit 0")), 0);
  sigset_t after;
  sigprocmask(SIG_SETMASK, nullptr, &after);
  for (const int number : {SIGINT, SIGTERM, SIGCHLD, SIGTSTP}) {
    EXPECT_EQ(sigismember(&before, number), sigismember(&after, number)) << number;
  }
}

}  // namespace
}  // namespace co2::processes
