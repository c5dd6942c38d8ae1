#include "sync/trained_here.h"

#include <utility>

#include "flat/checksum.h"
#include "sync/visiting.h"

namespace co2 {

namespace {
std::uint64_t bits_of(const at::Tensor& live) { return live.is_cpu() ? checksum(live) : 0; }
}  // namespace

void TrainedHere::look(const std::vector<at::Tensor>& live) {
  seen_.resize(live.size());
  for (std::size_t i = 0; i < live.size(); ++i) {
    const std::uint64_t now = bits_of(live[i]);
    if (now != seen_[i].checksum || !live[i].is_cpu()) seen_[i].trained = true;
    seen_[i].checksum = now;
  }
}

void TrainedHere::overlook(const std::vector<at::Tensor>& live) {
  for (std::size_t i = 0; i < seen_.size(); ++i) seen_[i].checksum = bits_of(live[i]);
}

void TrainedHere::restart() {
  for (Seen& seen : seen_) seen.trained = false;
}

std::vector<double> TrainedHere::answer() const {
  std::vector<double> trained;
  for (const Seen& seen : seen_) trained.push_back(seen.trained ? 1 : 0);
  return trained;
}

void TrainedHere::visit(StateVisitor& visitor, const std::string& name, std::size_t parameters) {
  visit_pairs(
      visitor, name, seen_, parameters,
      [](const Seen& seen) {
        return std::pair<std::int64_t, std::int64_t>(static_cast<std::int64_t>(seen.checksum), seen.trained ? 1 : 0);
      },
      [](std::int64_t checksum, std::int64_t trained) {
        return Seen{static_cast<std::uint64_t>(checksum), trained != 0};
      });
}

}  // namespace co2
