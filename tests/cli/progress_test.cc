#include "train/progress.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace co2::train {
namespace {

ProgressState state(std::int64_t step) {
  return {.step = step,
          .steps = 100,
          .loss = 2.5,
          .units_per_second = 12345,
          .overlap = 0.996,
          .local_steps = 12,
          .seconds_left = 83};
}

/// A variable of the environment, put back afterwards.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    setenv(name, value, 1);
  }
  ~Variable() {
    if (old_) {
      setenv(name_, old_->c_str(), 1);
    } else {
      unsetenv(name_);
    }
  }

 private:
  const char* name_;
  std::optional<std::string> old_;
};

/// A terminal of a given width; what was written to it can be read back.
class Terminal {
 public:
  explicit Terminal(int width) {
    winsize size{};
    size.ws_col = static_cast<unsigned short>(width);
    size.ws_row = 24;
    int slave = -1;
    if (openpty(&master_, &slave, nullptr, nullptr, &size) != 0) throw std::runtime_error("openpty");
    fcntl(master_, F_SETFL, O_NONBLOCK);
    stream_ = fdopen(slave, "w");
  }
  ~Terminal() {
    fclose(stream_);
    close(master_);
  }
  std::FILE* stream() { return stream_; }
  std::string written() {
    std::string text;
    char buffer[4096];
    ssize_t count = 0;
    while ((count = read(master_, buffer, sizeof buffer)) > 0) text.append(buffer, static_cast<std::size_t>(count));
    return text;
  }

 private:
  int master_ = -1;
  std::FILE* stream_ = nullptr;
};

std::string plain(const std::vector<ProgressState>& states) {
  std::FILE* file = std::tmpfile();
  {
    Progress progress(file, {.unit = "tokens"});
    for (const ProgressState& one : states) progress.update(one);
    progress.finish();
    progress.finish();
  }
  const auto size = static_cast<std::size_t>(std::ftell(file));
  std::string result(size, '\0');
  std::rewind(file);
  result.resize(std::fread(result.data(), 1, size, file));
  std::fclose(file);
  return result;
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (auto at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(Progress, PlainLinesAreFirstAndLastOfAQuickRun) {
  std::vector<ProgressState> states;
  for (int step = 1; step <= 100; ++step) states.push_back(state(step));
  const std::string text = plain(states);
  EXPECT_EQ(text.find('\r'), text.npos);
  EXPECT_EQ(text.find('\033'), text.npos);
  EXPECT_EQ(text.rfind("step   1/100", 0), 0U) << text;
  EXPECT_EQ(count(text, "100/100"), 1U) << text;
  EXPECT_GE(count(text, "\n"), 2U);
  EXPECT_LE(count(text, "\n"), 12U);
}

TEST(Progress, PlainLineSaysEverything) {
  const Variable utf8("LC_ALL", "C.UTF-8");
  EXPECT_EQ(plain({state(50)}), "step  50/100  loss 2.500  12,345 tokens/s  overlap 99 %  τ 12  1:23 left  50 %\n");
  const Variable ascii("LC_ALL", "C");
  EXPECT_EQ(plain({state(50)}), "step  50/100  loss 2.500  12,345 tokens/s  overlap 99 %  tau 12  1:23 left  50 %\n");
}

TEST(Progress, UnknownValuesAreLeftOut) {
  ProgressState unknown = state(50);
  unknown.loss = unknown.units_per_second = unknown.overlap = unknown.seconds_left = std::nan("");
  unknown.local_steps = 0;
  EXPECT_EQ(plain({unknown}), "step  50/100  50 %\n");
}

TEST(Progress, AnInterruptedRunShowsItsLastStep) {
  const std::string text = plain({state(1), state(2), state(3)});
  EXPECT_EQ(count(text, "  3/100"), 1U) << text;
}

TEST(Progress, LiveLineFitsAnyWidth) {
  const Variable terminal("TERM", "xterm");
  const Variable utf8("LC_ALL", "C.UTF-8");
  for (int width = 1; width <= 200; ++width) {
    Terminal screen(width);
    Progress progress(screen.stream(), {.unit = "tokens"});
    progress.update(state(37));
    std::string line = screen.written();
    ASSERT_EQ(line[0], '\r');
    ASSERT_EQ(line.substr(line.size() - 3), "\033[K");
    line = line.substr(1, line.size() - 4);
    const auto columns = std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; });
    EXPECT_LT(columns, width) << line;
    if (width > 20) {
      EXPECT_NE(line.find("37/100"), line.npos) << line;
    }
    if (width > 120) {
      EXPECT_NE(line.find("1:23 left"), line.npos) << line;
    }
  }
}

TEST(Progress, MessageStandsAboveTheLiveLine) {
  const Variable terminal("TERM", "xterm");
  Terminal screen(80);
  Progress progress(screen.stream(), {.unit = "tokens"});
  progress.update(state(10));
  screen.written();
  progress.message("validation loss 2.1");
  const std::string text = screen.written();
  EXPECT_EQ(text.rfind("\r\033[Kvalidation loss 2.1\r\n\r", 0), 0U) << text;
  EXPECT_NE(text.find("10/100"), text.npos);
  progress.finish();
  EXPECT_EQ(screen.written(), "\r\n");
}

TEST(Progress, MessagesBreakBetweenWordsOnATerminalOnly) {
  const Variable terminal_name("TERM", "xterm");
  Terminal terminal(20);
  Progress(terminal.stream(), TaskWords{}).message("a message that is longer than the screen is wide");
  EXPECT_EQ(terminal.written(), "a message that is\r\nlonger than the\r\nscreen is wide\r\n");
  const Variable no_terminal("TERM", "dumb");
  Progress(terminal.stream(), TaskWords{}).message("a message that is longer than the screen is wide");
  EXPECT_EQ(terminal.written(), "a message that is longer than the screen is wide\r\n");
}

TEST(Progress, LiveLineIsRedrawnAtMostTenTimesASecond) {
  const Variable terminal("TERM", "xterm");
  Terminal screen(80);
  Progress progress(screen.stream(), {.unit = "tokens"});
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 5000; ++i) progress.update(state(10));
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  EXPECT_LE(static_cast<double>(count(screen.written(), "\033[K")), 1 + 10 * seconds + 1);
}

TEST(Progress, DumbTerminalsGetPlainLines) {
  const Variable terminal("TERM", "dumb");
  Terminal screen(80);
  Progress progress(screen.stream(), {.unit = "tokens"});
  progress.update(state(10));
  EXPECT_EQ(screen.written().rfind("step", 0), 0U);
}

}  // namespace
}  // namespace co2::train
