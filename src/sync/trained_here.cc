#include "sync/trained_here.h"

#include <ATen/ops/empty.h>

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
  const std::size_t count = visit_count(visitor, name + "/count", seen_.size(), parameters);
  if (count != 0 && count != parameters) refuse_damaged(name + "/count", static_cast<double>(count));
  seen_.resize(count);
  if (count == 0) return;
  const at::Tensor values = at::empty({2, static_cast<std::int64_t>(count)}, at::kLong);
  auto* const checksums = values.data_ptr<std::int64_t>();
  auto* const trained = checksums + count;
  for (std::size_t i = 0; i < count; ++i) {
    checksums[i] = static_cast<std::int64_t>(seen_[i].checksum);
    trained[i] = seen_[i].trained ? 1 : 0;
  }
  visitor.tensor(name, values);
  for (std::size_t i = 0; i < count; ++i) seen_[i] = {static_cast<std::uint64_t>(checksums[i]), trained[i] != 0};
}

}  // namespace co2
