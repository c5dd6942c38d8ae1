#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

/// Inside a worker process, where GoogleTest's own expectations would be lost.
#define CO2_EXPECT(condition) \
  if (!(condition)) throw std::runtime_error(std::string(__FILE__ ":") + std::to_string(__LINE__) + ": " #condition)

namespace co2::test {

/// A socket that listens on a free port of the loopback.
class ListeningSocket {
 public:
  ListeningSocket() : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_ANY);
    socklen_t length = sizeof(address);
    if (fd_ < 0 || bind(fd_, reinterpret_cast<sockaddr*>(&address), length) != 0 || listen(fd_, 16) != 0 ||
        getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
      throw std::runtime_error("no socket for the test");
    }
    port_ = ntohs(address.sin_port);
  }
  ~ListeningSocket() { close(fd_); }
  ListeningSocket(const ListeningSocket&) = delete;
  ListeningSocket& operator=(const ListeningSocket&) = delete;
  int fd() const { return fd_; }
  int port() const { return port_; }

 private:
  int fd_;
  int port_ = 0;
};

/// Forked ranks, by rank. None outlives it, whatever way the test leaves; nor the test program, if that is killed.
class Ranks {
 public:
  Ranks() = default;
  ~Ranks() {
    for (std::size_t rank = 0; rank < pids_.size(); ++rank) end(rank);
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  /// Starts the next one: returns 0 in it, and in the parent its process.
  pid_t start() {
    const pid_t parent = getpid();
    const pid_t pid = fork();
    if (pid < 0) throw std::runtime_error(std::string("can't fork a rank: ") + std::strerror(errno));
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);  // it was gone before we asked to be told
      pids_.clear();                      // the earlier ones are not the child's to end
    } else {
      pids_.push_back(pid);
    }
    return pid;
  }

  /// False if it has not ended by then.
  bool wait(std::size_t rank, int& status, std::chrono::steady_clock::time_point deadline) {
    while (waitpid(pids_[rank], &status, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() >= deadline) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    pids_[rank] = 0;
    return true;
  }

  /// Until it ends or, if it is traced, stops.
  int wait(std::size_t rank) {
    int status = 0;
    waitpid(pids_[rank], &status, 0);
    if (!WIFSTOPPED(status)) pids_[rank] = 0;
    return status;
  }

  void end(std::size_t rank) {
    if (pids_[rank] == 0) return;
    kill(pids_[rank], SIGKILL);
    waitpid(pids_[rank], nullptr, 0);
    pids_[rank] = 0;
  }

 private:
  std::vector<pid_t> pids_;  // 0 once it has been waited for
};

/// Forks `size` processes with a launcher's environment, runs `body(rank)` in each and expects all of them to end well
/// within `limit`; what is left after it is killed. Must be called before this process has started threads.
inline void run_processes(int size, const std::function<void(int)>& body,
                          std::chrono::seconds limit = std::chrono::seconds(60)) {
  const ListeningSocket store;
  Ranks ranks;
  std::fflush(nullptr);
  for (int rank = 0; rank < size; ++rank) {
    if (ranks.start() != 0) continue;
    const auto set = [](const char* name, int value) { setenv(name, std::to_string(value).c_str(), 1); };
    set("RANK", rank);
    set("WORLD_SIZE", size);
    set("LOCAL_RANK", rank);
    set("LOCAL_WORLD_SIZE", size);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    set("MASTER_PORT", store.port());
    setenv("OMP_NUM_THREADS", "1", 1);
    if (rank == 0) {
      set("CO2_MASTER_LISTEN_FD", store.fd());
    } else {
      close(store.fd());
    }
    int code = 0;
    try {
      body(rank);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "[rank %d] %s\n", rank, error.what());
      code = 1;
    }
    std::fflush(nullptr);
    // Not exit(): what the parent's static objects hold is not the child's to destroy.
    _exit(code);
  }
  const auto deadline = std::chrono::steady_clock::now() + limit;
  for (int rank = 0; rank < size; ++rank) {
    const auto index = static_cast<std::size_t>(rank);
    int status = 0;
    if (ranks.wait(index, status, deadline)) {
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "rank " << rank << " failed, status " << status;
    } else {
      ranks.end(index);
      ADD_FAILURE() << "rank " << rank << " did not end in time";
    }
  }
}

}  // namespace co2::test
