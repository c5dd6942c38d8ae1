#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
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

/// Forks `size` processes with a launcher's environment, runs `body(rank)` in each and expects all of them to end well
/// within `limit`; what is left after it is killed. Must be called before this process has started threads.
inline void run_processes(int size, const std::function<void(int)>& body,
                          std::chrono::seconds limit = std::chrono::seconds(60)) {
  const ListeningSocket store;
  std::vector<pid_t> pids;
  std::fflush(nullptr);
  for (int rank = 0; rank < size; ++rank) {
    const pid_t pid = fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
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
    pids.push_back(pid);
  }
  const auto deadline = std::chrono::steady_clock::now() + limit;
  for (std::size_t i = 0; i < pids.size(); ++i) {
    int status = 0;
    pid_t done = 0;
    while ((done = waitpid(pids[i], &status, WNOHANG)) == 0 && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    if (done == 0) {
      kill(pids[i], SIGKILL);
      waitpid(pids[i], &status, 0);
      ADD_FAILURE() << "rank " << i << " did not end in time";
    }
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "rank " << i << " failed, status " << status;
  }
}

}  // namespace co2::test
