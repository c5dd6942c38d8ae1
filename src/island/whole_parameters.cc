#include "island/whole_parameters.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <co2/error.h>

#include "flat/checksum.h"
#include "trace/bytes.h"

namespace co2 {

WholeParameters::WholeParameters(const Island& island, FlatParameters& flat, const Shard& shard, at::ScalarType compute,
                                 const std::vector<ParameterUnit>& modules, Trace& trace)
    : flat_(flat), shard_(shard), compute_(compute) {
  const at::NoGradGuard no_grad;
  if (compute_ != flat.data().scalar_type()) {
    apart_ = shard.copy_of(flat.data());
    flat.become(compute_);
  }
  if (flat.parts() > 1) shown_ = std::make_unique<ShownUnits>(island, flat, modules, trace);
}

void WholeParameters::settle() {
  if (shown_) shown_->wait();
}

void WholeParameters::changed(const std::vector<Range>& parts, std::int64_t round) {
  if (flat_.data().scalar_type() != compute_) flat_.become(compute_);  // after a finish()
  show(parts, round);
}

void WholeParameters::show(const std::vector<Range>& parts, std::int64_t round) {
  if (apart_.defined()) {
    for (const Range& part : parts) {
      shard_.write_to(flat_.data(), apart_.narrow(0, part.begin, part.size()), part);
    }
  }
  if (shown_) shown_->show(parts, round);
}

void WholeParameters::finish(const std::vector<Range>& parts, std::int64_t round, bool /*whole*/) {
  if (apart_.defined()) {
    flat_.become(apart_.scalar_type());
    show({{0, shard_.numel()}}, round);  // all of it has more digits now
  } else {
    show(parts, round);
  }
  settle();
}

void WholeParameters::with_values(const at::Tensor& shard, std::int64_t /*round*/, const std::function<void()>& body) {
  struct Restore {
    FlatParameters& flat;
    ~Restore() { flat.point_to(flat.data()); }
  };
  at::Tensor whole = shard;
  if (shown_ || apart_.defined()) {
    const at::NoGradGuard no_grad;
    settle();
    whole = at::empty_like(flat_.data());
    shard_.write_to(whole, shard, {0, shard_.numel()});
    if (shown_) shown_->gather(whole);
  }
  const std::uint64_t before = checksum(whole);
  {
    flat_.point_to(whole);
    const Restore restore{flat_};
    body();
  }
  if (checksum(whole) != before) {
    throw ConsensusError(
        "the function that was given to with_consensus() has changed the model's parameters, which are the consensus "
        "of all workers there: it must only read them. Go on from the last model that you saved");
  }
}

std::int64_t WholeParameters::most_bytes() const {
  return flat_.numel() * static_cast<std::int64_t>(c10::elementSize(compute_)) + bytes_of(apart_);
}

}  // namespace co2
