#include "processes/stop_signal.h"

#include <array>
#include <csignal>
#include <cstdint>
#include <ctime>

namespace co2::processes {

namespace {

constexpr std::array kSignals{SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

// A signal handler can reach nothing but globals: this is the one place that has some.
std::atomic<bool> requested_flag{false};
std::atomic<int> received_signal{0};
std::atomic<std::int64_t> received_time{0};
std::array<struct sigaction, kSignals.size()> former_actions;
static_assert(std::atomic<std::int64_t>::is_always_lock_free, "needed inside a signal handler");

std::int64_t now_milliseconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

void on_signal(int number) {
  if (received_signal == 0) {
    received_signal = number;
    received_time = now_milliseconds();
    requested_flag = true;
    return;
  }
  // timeout(1) and others signal a process and then its whole group: that is one wish to stop, not two.
  constexpr std::int64_t kSameWish = 250;
  if (number == SIGHUP || now_milliseconds() - received_time < kSameWish) return;
  signal(number, SIG_DFL);
  raise(number);
}

}  // namespace

StopSignal::StopSignal() {
  requested_flag = false;
  received_signal = 0;
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;  // calls inside libraries go on: the loop looks at the flag by itself
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], &action, &former_actions[i]);
    if (former_actions[i].sa_handler == SIG_IGN) sigaction(kSignals[i], &former_actions[i], nullptr);
  }
}

StopSignal::~StopSignal() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &former_actions[i], nullptr);
}

const std::atomic<bool>& StopSignal::requested() const { return requested_flag; }
int StopSignal::signal() const { return received_signal; }

}  // namespace co2::processes
