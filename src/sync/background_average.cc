#include "sync/background_average.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <numeric>
#include <utility>

#include "comm/transfer.h"
#include "sync/visiting.h"
#include "sync/wire_format.h"
#include "trace/bytes.h"

namespace co2 {

BackgroundAverage::BackgroundAverage(std::shared_ptr<Communicator> communicator, Form form, Trace& trace)
    : communicator_(std::move(communicator)), form_(std::move(form)), trace_(trace) {
  const std::int64_t elements = std::accumulate(form_.sizes.begin(), form_.sizes.end(), std::int64_t{0});
  sent_ = at::empty({elements}, form_.wire);
  payload_ = at::empty({elements + 1}, form_.wire);
}

/// Defined tensors, with where they are among the elements of all.
template <typename Body>
void BackgroundAverage::for_each(const Tensors& tensors, const Body& body) const {
  TORCH_CHECK(tensors.size() == form_.sizes.size(), "BackgroundAverage is of ", form_.sizes.size(), " tensors");
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    TORCH_CHECK(!tensors[i].defined() || tensors[i].numel() == form_.sizes[i], "BackgroundAverage: another size");
    body(tensors[i], begin, form_.sizes[i]);
    begin += form_.sizes[i];
  }
}

void BackgroundAverage::launch(const Tensors& tensors, std::int64_t round) {
  const at::NoGradGuard no_grad;
  for_each(tensors, [&](const at::Tensor& tensor, std::int64_t begin, std::int64_t size) {
    const at::Tensor place = sent_.narrow(0, begin, size);
    tensor.defined() ? place.copy_(tensor.reshape({-1})) : place.zero_();
  });
  took_part_ = sent_.sum(at::kDouble).isfinite().item<bool>();
  if (!took_part_) sent_.zero_();
  payload_.narrow(0, 0, sent_.numel()).copy_(sent_);
  payload_.narrow(0, sent_.numel(), 1).fill_(took_part_ ? 1 : 0);
  works_ = all_reduce_in_buckets(*communicator_, payload_, form_.bucket_bytes);
  round_ = round;
  in_flight_ = true;
}

void BackgroundAverage::apply(const Tensors& tensors) {
  if (!in_flight_) return;
  wait_for_transfer(works_, communicator_->all_reduce_wire_bytes(bytes_of(payload_)), round_, -1, trace_);
  later_.show();
  const at::NoGradGuard no_grad;
  const double workers = payload_.narrow(0, sent_.numel(), 1).item<double>();
  if (workers > 0) {
    for_each(tensors, [&](const at::Tensor& tensor, std::int64_t begin, std::int64_t size) {
      if (!tensor.defined()) return;
      const at::ScalarType wide = at::promote_types(tensor.scalar_type(), payload_.scalar_type());
      const at::Tensor mean = payload_.narrow(0, begin, size).to(wide).div_(workers);
      if (took_part_) {
        tensor.add_(mean.sub_(sent_.narrow(0, begin, size)).view(tensor.sizes()));
      } else {
        tensor.copy_(mean.view(tensor.sizes()));
      }
      if (form_.never_negative) tensor.clamp_min_(0);
    });
  }
  works_.clear();
  in_flight_ = false;
}

void BackgroundAverage::check() { throw_if_failed(works_, round_); }

void BackgroundAverage::abandon() noexcept {
  wait_out(works_);
  works_.clear();
  in_flight_ = false;
}

void BackgroundAverage::settle() {
  for (const WorkPtr& work : works_) wait_in_round(*work, round_);
  later_.show();
}

void BackgroundAverage::visit(Walk& walk, const std::string& name) {
  StateVisitor& visitor = walk.visitor();
  if (walk.reads()) abandon();
  co2::visit(visitor, name + "/in_flight", in_flight_);
  if (!in_flight_) return;
  visitor.number(name + "/round", round_);
  co2::visit(visitor, name + "/took_part", took_part_);
  visitor.tensor(name + "/sent", sent_);
  walk.arriving(works_, round_, later_, [=, this](StateVisitor& to) { to.tensor(name + "/sum", payload_); });
}

std::int64_t BackgroundAverage::bytes() const { return bytes_of(sent_) + bytes_of(payload_); }

}  // namespace co2
