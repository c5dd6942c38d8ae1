#include "sync/background_average.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <numeric>
#include <utility>

#include "base/range.h"
#include "comm/transfer.h"
#include "flat/cut.h"
#include "sync/visiting.h"
#include "sync/wire_format.h"
#include "trace/bytes.h"

namespace co2 {

namespace {
bool finite(const at::Tensor& tensor) { return tensor.sum(at::kDouble).isfinite().item<bool>(); }
}  // namespace

BackgroundAverage::BackgroundAverage(std::shared_ptr<Communicator> communicator, Form form, Trace& trace)
    : communicator_(std::move(communicator)), form_(std::move(form)), trace_(trace) {
  const std::int64_t elements = std::accumulate(form_.sizes.begin(), form_.sizes.end(), std::int64_t{0});
  const auto tensors = static_cast<std::int64_t>(form_.sizes.size());
  sent_ = at::empty({elements}, form_.wire);
  payload_ = at::empty({elements + tensors}, form_.wire);
  took_part_ = at::zeros({tensors}, at::kBool);
}

/// All tensors, with their number and their place in what is sent.
template <typename Body>
void BackgroundAverage::for_each(const Tensors& tensors, const Body& body) const {
  TORCH_CHECK(tensors.size() == form_.sizes.size(), "BackgroundAverage is of ", form_.sizes.size(), " tensors");
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    TORCH_CHECK(!tensors[i].defined() || tensors[i].numel() == form_.sizes[i], "BackgroundAverage: another size");
    body(i, tensors[i], Range{begin, begin + form_.sizes[i]});
    begin += form_.sizes[i];
  }
}

void BackgroundAverage::launch(const Tensors& tensors, std::int64_t round) {
  const at::NoGradGuard no_grad;
  bool* const took_part = took_part_.data_ptr<bool>();
  for_each(tensors, [&](std::size_t i, const at::Tensor& tensor, const Range& where) {
    took_part[i] = tensor.defined();
    tensor.defined() ? cut(sent_, where).copy_(tensor.reshape({-1})) : cut(sent_, where).zero_();
  });
  if (!finite(sent_)) {  // seldom: only then one by one
    for_each(tensors, [&](std::size_t i, const at::Tensor&, const Range& where) {
      if (finite(cut(sent_, where))) return;
      took_part[i] = false;
      cut(sent_, where).zero_();
    });
  }
  payload_.narrow(0, 0, sent_.numel()).copy_(sent_);
  payload_.narrow(0, sent_.numel(), took_part_.numel()).copy_(took_part_);
  works_ = all_reduce_in_buckets(*communicator_, payload_, form_.bucket_bytes);
  round_ = round;
  in_flight_ = true;
}

void BackgroundAverage::apply(const Tensors& tensors, const std::vector<double>& kept) {
  if (!in_flight_) return;
  wait_for_transfer(works_, communicator_->all_reduce_wire_bytes(bytes_of(payload_)), round_, -1, trace_);
  later_.show();
  const at::NoGradGuard no_grad;
  const at::Tensor took_part = payload_.narrow(0, sent_.numel(), took_part_.numel()).to(at::kCPU, at::kDouble);
  for_each(tensors, [&](std::size_t i, const at::Tensor& tensor, const Range& where) {
    const double workers = took_part.const_data_ptr<double>()[i];
    if (!tensor.defined() || workers == 0) return;
    const at::ScalarType wide = at::promote_types(tensor.scalar_type(), payload_.scalar_type());
    const at::Tensor mean = cut(payload_, where).to(wide).div_(workers).view(tensor.sizes());
    const at::Tensor sent = cut(sent_, where).to(wide).view(tensor.sizes());
    if (!took_part_.const_data_ptr<bool>()[i]) {
      if (!finite(tensor)) tensor.copy_(mean);
    } else if (!kept.empty()) {
      tensor.add_(mean.sub_(sent), kept[i]);
    } else {
      const at::Tensor own = tensor.to(wide);
      const at::Tensor moved = own + mean - sent;
      const at::Tensor never_negative = at::minimum(own, sent).ge(0);
      tensor.copy_(at::where(never_negative, at::maximum(moved, at::minimum(mean, own)), moved));
    }
  });
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
  visitor.tensor(name + "/took_part", took_part_);
  visitor.tensor(name + "/sent", sent_);
  walk.arriving(works_, round_, later_, [=, this](StateVisitor& to) { to.tensor(name + "/sum", payload_); });
}

std::int64_t BackgroundAverage::bytes() const { return bytes_of(sent_) + bytes_of(payload_); }

}  // namespace co2
