#include "sync/start_the_same.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <co2/error.h>

#include <algorithm>
#include <exception>

#include "comm/buckets.h"
#include "flat/shaped_like.h"
#include "island/one_by_one.h"

namespace co2 {

namespace {

/// What a user's function throws on rank 0 must not leave the others waiting: it is told when all has been sent.
class Values {
 public:
  Values(Communicator& control, const TrainedModel& model) : control_(control), model_(model) {}

  void fill(std::size_t parameter, const at::Tensor& into) {
    if (control_.rank() != 0 || problem_) return;
    try {
      model_.first_values(model_.parameters[parameter].name, into);
    } catch (...) {
      problem_ = std::current_exception();
    }
  }

  void tell() const {
    const at::Tensor failed = at::full({1}, problem_ ? 1.0 : 0.0, at::kDouble);
    control_.all_reduce(failed, ReduceOp::kMax)->wait();
    if (problem_) std::rethrow_exception(problem_);
    if (failed.item<double>() > 0) throw ClusterError("rank 0 could not give the model its first values: see there");
  }

 private:
  Communicator& control_;
  const TrainedModel& model_;
  std::exception_ptr problem_;
};

void broadcast(Communicator& communicator, const at::Tensor& tensor, std::int64_t bucket_bytes) {
  const at::Tensor elements = tensor.view({-1});
  const std::int64_t most = std::max<std::int64_t>(1, bucket_bytes / elements.element_size());
  for (const Range& bucket : make_buckets(elements.numel(), most)) {
    communicator.broadcast(elements.narrow(0, bucket.begin, bucket.size()), 0)->wait();
  }
}

}  // namespace

at::Tensor start_the_same(Communicator& data, Communicator& control, const Island& island, const FlatParameters& flat,
                          std::int64_t shard_elements, const TrainedModel& model, std::int64_t bucket_bytes) {
  const at::NoGradGuard no_grad;
  Values values(control, model);
  at::Tensor shard;
  if (flat.data().defined()) {
    for (const std::size_t i : flat.in_given_order()) {
      if (flat.was_empty(i)) values.fill(flat.given(i), flat.parameters()[i].detach());
    }
    broadcast(data, flat.data(), bucket_bytes);
  } else {
    shard = at::zeros({shard_elements}, flat.options());
    for (const std::size_t i : flat.in_given_order()) {
      const at::Tensor& parameter = flat.parameters()[i];
      const at::Tensor elements = at::zeros({parameter.numel()}, flat.options());
      const at::Tensor shaped = shaped_like(elements, parameter);
      if (flat.was_empty(i)) {
        values.fill(flat.given(i), shaped);
      } else if (data.rank() == 0) {
        shaped.copy_(parameter);
      }
      broadcast(data, elements, bucket_bytes);
      keep_part(island, flat, shard, i, elements);
    }
  }
  std::vector<at::Tensor> rest = model.others;
  for (const auto& [name, buffer] : model.buffers) rest.push_back(buffer);
  for (const at::Tensor& tensor : rest) {
    if (!tensor.defined() || tensor.numel() == 0) continue;
    const at::Tensor copy = tensor.detach().contiguous();
    broadcast(data, copy, bucket_bytes);
    tensor.detach().copy_(copy);
  }
  values.tell();
  return shard;
}

}  // namespace co2
