#include "processes/screen.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>

namespace co2::processes {

void show(std::FILE* stream, std::string_view text) noexcept {
  std::fwrite(text.data(), 1, text.size(), stream);
  std::fflush(stream);
}

bool is_live(std::FILE* stream) noexcept {
  const char* terminal = std::getenv("TERM");
  return isatty(fileno(stream)) != 0 && terminal != nullptr && std::string_view(terminal) != "dumb";
}

std::size_t screen_width(std::FILE* stream) noexcept {
  winsize size{};
  if (ioctl(fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

}  // namespace co2::processes
