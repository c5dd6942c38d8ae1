#include "front/optimizer_state.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <co2/error.h>
#include <fmt/format.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <typeinfo>
#include <utility>

#include "sync/named_stretches.h"
#include "sync/visiting.h"
#include "trace/bytes.h"

namespace co2 {

namespace {

template <typename... Known>
bool is_one_of(const torch::optim::Optimizer& optimizer) {
  return ((dynamic_cast<const Known*>(&optimizer) != nullptr) || ...);
}

/// Not derived from one of these: that might remember more.
template <typename... Known>
bool is_exactly_one_of(const torch::optim::OptimizerParamState& state) {
  return ((typeid(state) == typeid(Known)) || ...);
}

}  // namespace

StateFields fields_of(torch::optim::OptimizerParamState& state) {
  using namespace torch::optim;
  const auto with_step = [](auto* known, std::vector<StateFields::Field> tensors) {
    return StateFields{known->step(), [known](std::int64_t step) { known->step(step); }, std::move(tensors)};
  };
  if (auto* adamw = dynamic_cast<AdamWParamState*>(&state)) {
    return with_step(adamw, {{"exp_avg", &adamw->exp_avg()},
                             {"exp_avg_sq", &adamw->exp_avg_sq()},
                             {"max_exp_avg_sq", &adamw->max_exp_avg_sq()}});
  }
  if (auto* adam = dynamic_cast<AdamParamState*>(&state)) {
    return with_step(adam, {{"exp_avg", &adam->exp_avg()},
                            {"exp_avg_sq", &adam->exp_avg_sq()},
                            {"max_exp_avg_sq", &adam->max_exp_avg_sq()}});
  }
  if (auto* sgd = dynamic_cast<SGDParamState*>(&state)) {
    return {.tensors = {{"momentum_buffer", &sgd->momentum_buffer()}}};
  }
  if (auto* rmsprop = dynamic_cast<RMSpropParamState*>(&state)) {
    return with_step(rmsprop, {{"square_avg", &rmsprop->square_avg()},
                               {"momentum_buffer", &rmsprop->momentum_buffer()},
                               {"grad_avg", &rmsprop->grad_avg()}});
  }
  if (auto* adagrad = dynamic_cast<AdagradParamState*>(&state)) return with_step(adagrad, {{"sum", &adagrad->sum()}});
  return {};
}

std::string kind_of(const torch::optim::Optimizer& optimizer) {
  using namespace torch::optim;
  std::string kind = typeid(optimizer).name();
  for (const auto& group : optimizer.param_groups()) {
    if (!group.has_options()) continue;
    const OptimizerOptions& options = group.options();
    if (const auto* adamw = dynamic_cast<const AdamWOptions*>(&options)) {
      kind += adamw->amsgrad() ? ",amsgrad" : ",";
    } else if (const auto* adam = dynamic_cast<const AdamOptions*>(&options)) {
      kind += adam->amsgrad() ? ",amsgrad" : ",";
    } else if (const auto* rmsprop = dynamic_cast<const RMSpropOptions*>(&options)) {
      kind += fmt::format(",{}{}", rmsprop->centered() ? "centered" : "", rmsprop->momentum() > 0 ? "momentum" : "");
    } else if (const auto* sgd = dynamic_cast<const SGDOptions*>(&options)) {
      kind += sgd->momentum() > 0 ? ",momentum" : ",";
    }
  }
  return kind;
}

bool has_second_moments(const torch::optim::Optimizer& optimizer) {
  using namespace torch::optim;
  return is_one_of<Adam, AdamW, RMSprop>(optimizer);
}

at::Tensor second_moment_of(const torch::optim::Optimizer& optimizer, const at::Tensor& parameter) {
  const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
  if (found == optimizer.state().end()) return {};
  for (const auto& [name, tensor] : fields_of(*found->second).tensors) {
    for (const std::string_view second_moment : {"exp_avg_sq", "square_avg"}) {
      if (name == second_moment) return *tensor;
    }
  }
  return {};
}

double second_moment_decay(const torch::optim::OptimizerParamGroup& group) {
  using namespace torch::optim;
  const OptimizerOptions& options = group.options();
  if (const auto* adamw = dynamic_cast<const AdamWOptions*>(&options)) return std::get<1>(adamw->betas());
  if (const auto* adam = dynamic_cast<const AdamOptions*>(&options)) return std::get<1>(adam->betas());
  if (const auto* rmsprop = dynamic_cast<const RMSpropOptions*>(&options)) return rmsprop->alpha();
  return 1;
}

std::int64_t state_bytes(const torch::optim::Optimizer& optimizer) {
  std::int64_t bytes = 0;
  for (const auto& [parameter, state] : optimizer.state()) {
    for (const StateFields::Field& field : fields_of(*state).tensors) bytes += bytes_of(*field.tensor);
  }
  return bytes;
}

void check_elementwise(const torch::optim::Optimizer& optimizer) {
  using namespace torch::optim;
  if (!is_one_of<SGD, Adam, AdamW, RMSprop, Adagrad>(optimizer)) {
    throw OptionError(
        "zero and compute = bfloat16 need an optimizer that updates every element by itself: SGD, Adam, AdamW, "
        "RMSprop, Adagrad, or one derived from them. This one is not known to: use zero = 0");
  }
  for (const auto& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
      if (found == optimizer.state().end()) continue;
      OptimizerParamState& state = *found->second;
      bool fits =
          is_exactly_one_of<SGDParamState, AdamParamState, AdamWParamState, RMSpropParamState, AdagradParamState>(
              state);
      for (const auto& [name, tensor] : fields_of(state).tensors) {
        fits =
            fits && (!tensor->defined() || (tensor->sizes() == parameter.sizes() && tensor->layout() == at::kStrided));
      }
      if (fits) continue;
      throw OptionError(
          "the optimizer has state that zero and compute = bfloat16 don't know how to divide: make the Synchronizer "
          "before the first step");
    }
  }
}

namespace {

/// What an optimizer makes when a parameter gets its first gradient.
std::unique_ptr<torch::optim::OptimizerParamState> fresh_state(const torch::optim::Optimizer& optimizer) {
  using namespace torch::optim;
  if (is_one_of<AdamW>(optimizer)) return std::make_unique<AdamWParamState>();
  if (is_one_of<Adam>(optimizer)) return std::make_unique<AdamParamState>();
  if (is_one_of<SGD>(optimizer)) return std::make_unique<SGDParamState>();
  if (is_one_of<RMSprop>(optimizer)) return std::make_unique<RMSpropParamState>();
  if (is_one_of<Adagrad>(optimizer)) return std::make_unique<AdagradParamState>();
  throw OptionError(
      "the state of this optimizer is not known, so it can't be saved: use SGD, Adam, AdamW, RMSprop, Adagrad or one "
      "derived from them, or save it yourself and use Core::visit()");
}

}  // namespace

void visit_inner_state(StateVisitor& visitor, torch::optim::Optimizer& optimizer,
                       const std::vector<Parameter>& parameters, const std::vector<TrainedTensor>& trained) {
  const at::NoGradGuard no_grad;
  fresh_state(optimizer);  // throws if it is not known
  for (const auto& [tensor, group, pieces] : trained) {
    if (pieces.empty() || tensor.numel() == 0) continue;  // only padding, which nothing ever moves
    const std::string name = "inner/" + stretch_name(pieces.front(), parameters);
    const auto found = optimizer.state().find(tensor.unsafeGetTensorImpl());
    bool has_state = found != optimizer.state().end();
    visit(visitor, name + "/has_state", has_state);
    if (visitor.reads() && !has_state) optimizer.state().erase(tensor.unsafeGetTensorImpl());
    if (!has_state) continue;
    auto& state = optimizer.state()[tensor.unsafeGetTensorImpl()];
    if (!state) state = fresh_state(optimizer);
    StateFields fields = fields_of(*state);
    visitor.number(name + "/step", fields.step);
    if (visitor.reads() && fields.set_step) fields.set_step(fields.step);
    for (const auto& [field, value] : fields.tensors) {
      bool defined = value->defined();
      visit(visitor, fmt::format("{}/has_{}", name, field), defined);
      if (visitor.reads() && !defined) value->reset();
      if (!defined) continue;
      if (!value->defined()) *value = at::zeros_like(tensor, at::MemoryFormat::Preserve);
      if (pieces.size() == 1 && pieces.front().size == tensor.numel()) {
        visitor.tensor(fmt::format("{}/{}", name, field), *value);
        continue;
      }
      for (const TrainedTensor::Piece& piece : pieces) {
        visitor.tensor(fmt::format("inner/{}/{}", stretch_name(piece, parameters), field),
                       value->narrow(0, piece.at, piece.size));
      }
    }
  }
}

}  // namespace co2
