#include <co2/error.h>
#include <fmt/format.h>

namespace co2 {

namespace {
std::string describe(const CommError::Where& where, const std::string& cause) {
  std::string text = fmt::format("{} failed", where.operation);
  if (where.rank >= 0) text += fmt::format(" on rank {}", where.rank);
  if (where.round >= 0) text += fmt::format(" in round {}", where.round);
  if (!where.peer.empty()) text += fmt::format(", peer {}", where.peer);
  return fmt::format(
      "{}: {}. Look at the other workers' output: one of them has ended or does not take part, or the "
      "network between them is down or too slow.",
      text, cause);
}
}  // namespace

CommError::CommError(Where where, const std::string& cause)
    : Error(describe(where, cause), 5), where_(std::move(where)), cause_(cause) {}

}  // namespace co2
