#include <fcntl.h>

#include <csignal>

#include "cli/program.h"

namespace {

/// A descriptor below 3 that is closed would be given to the next file that is opened: progress would end up in it.
void open_standard_streams() {
  for (int fd = 0; fd < 3; ++fd) {
    if (fcntl(fd, F_GETFD) < 0) open("/dev/null", O_RDWR);  // takes the lowest that is free, which is this one
  }
}

}  // namespace

int main(int argc, char** argv) {
  open_standard_streams();
  std::signal(SIGCHLD, SIG_DFL);  // inherited as ignored, it would hide how our workers end
  return co2::cli::run_program({argv + 1, argv + argc});
}
