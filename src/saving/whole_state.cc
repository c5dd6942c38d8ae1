#include "saving/whole_state.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <co2/cluster.h>
#include <co2/core.h>
#include <co2/error.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <exception>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "checkpoint/names.h"
#include "flat/outline.h"
#include "flat/shaped_like.h"
#include "saving/part_visitors.h"
#include "sync/named_stretches.h"

namespace co2 {

namespace {

constexpr std::string_view kLive = "live/", kConsensus = "consensus/", kMomentum = "momentum/", kInner = "inner/",
                           kMine = "mine/", kAgreement = "agreement/";

struct Stretch {
  std::string parameter;
  Range elements;
};

/// The inverse of stretch_name().
std::optional<Stretch> parse_stretch(std::string_view text, const Outlines& outlines) {
  if (const auto whole = outlines.find(std::string(text)); whole != outlines.end()) {
    return Stretch{whole->first, {0, whole->second.numel()}};
  }
  const auto open = text.rfind('['), colon = text.rfind(':');
  if (open == text.npos || colon == text.npos || colon < open || !text.ends_with(']')) return std::nullopt;
  const auto found = outlines.find(std::string(text.substr(0, open)));
  if (found == outlines.end()) return std::nullopt;
  Range elements{-1, -1};
  std::from_chars(text.data() + open + 1, text.data() + colon, elements.begin);
  std::from_chars(text.data() + colon + 1, text.data() + text.size() - 1, elements.end);
  const bool fits = 0 <= elements.begin && elements.begin <= elements.end && elements.end <= found->second.numel();
  return fits ? std::optional(Stretch{found->first, elements}) : std::nullopt;
}

Outlines by_name(const TrainedModel& outline) {
  Outlines outlines;
  for (const Parameter& parameter : outline.parameters) outlines.emplace(parameter.name, parameter.tensor);
  return outlines;
}

/// "inner/STRETCH/WHAT" taken apart, `what` with its slash.
struct InnerName {
  std::string_view stretch, what;
};
std::optional<InnerName> parse_inner(std::string_view name) {
  const std::size_t slash = name.rfind('/');
  if (!name.starts_with(kInner) || slash < kInner.size()) return std::nullopt;
  return InnerName{name.substr(kInner.size(), slash - kInner.size()), name.substr(slash)};
}

/// What has a name that begins so.
void take_prefixed(const checkpoint::Part& part, std::string_view prefix, WholeState& state) {
  const auto take = [&](const auto& from, auto& to) {
    for (const auto& [name, value] : from) {
      if (name.starts_with(prefix)) to.emplace(name, value);
    }
  };
  take(part.tensors, state.tensors);
  take(part.integers, state.integers);
  take(part.numbers, state.numbers);
}

/// The sum of what islands have of a parameter, and how many elements of it were given.
struct Sum {
  at::Tensor elements;
  std::int64_t given = 0;
};

class Assembly {
 public:
  explicit Assembly(const TrainedModel& outline) : outlines_(by_name(outline)) {}

  /// A tensor whose name is PREFIX STRETCH SUFFIX. What is not of a parameter is left alone.
  void add(std::string_view prefix, std::string_view stretch, std::string_view suffix, const at::Tensor& value) {
    const auto where = parse_stretch(stretch, outlines_);
    if (!where) return;
    const at::Tensor& parameter = outlines_.at(where->parameter);
    at::Tensor flat = value.flatten();
    if (value.dim() > 1 && value.sizes() == parameter.sizes()) {  // by its shape
      flat = at::empty({value.numel()}, value.options());
      shaped_like(flat, parameter).copy_(value);
    }
    Sum& sum = sums_[fmt::format("{}{}{}", prefix, where->parameter, suffix)];
    if (!sum.elements.defined()) sum.elements = at::zeros({parameter.numel()}, value.options());
    sum.elements.narrow(0, where->elements.begin, where->elements.size()).add_(flat);
    sum.given += where->elements.size();
  }

  /// The mean over the islands that had it.
  void into(WholeState& state) {
    for (auto& [name, sum] : sums_) {
      const std::int64_t size = std::max<std::int64_t>(sum.elements.numel(), 1);
      if (sum.given % size != 0) throw DataError(fmt::format("the checkpoint has only a part of {}", name));
      if (sum.given > size) sum.elements.div_(static_cast<double>(sum.given / size));
      state.tensors.emplace(name, sum.elements);
    }
  }

 private:
  const Outlines outlines_;
  std::map<std::string, Sum> sums_;
};

/// Numbers of an optimizer's tensor are told once, under the name of its first piece: all parameters in it have them.
void take_inner_numbers(const Core& core, const TrainedModel& outline, const checkpoint::Part& part,
                        std::map<std::string, std::int64_t>& integers) {
  for (const TrainedTensor& trained : core.trained()) {
    if (trained.pieces.empty()) continue;
    const std::string prefix = fmt::format("{}{}/", kInner, stretch_name(trained.pieces.front(), outline.parameters));
    for (auto number = part.integers.lower_bound(prefix); number != part.integers.end(); ++number) {
      if (!number->first.starts_with(prefix)) break;
      const std::string what = number->first.substr(prefix.size());
      for (const TrainedTensor::Piece& piece : trained.pieces) {
        auto& value = integers[fmt::format("{}{}/{}", kInner, outline.parameters[piece.parameter].name, what)];
        value = std::max(value, number->second);
      }
    }
  }
}

/// Who is left out of every average, as its numbers are not finite, is left out of this one too; unless all are so.
std::vector<bool> islands_with_finite_state(const std::vector<checkpoint::Part>& parts, int island_size) {
  std::vector<bool> finite(parts.size() / static_cast<std::size_t>(island_size), true);
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    for (const auto& [name, value] : parts[rank].tensors) {
      if (!name.starts_with(kInner) || !value.is_floating_point()) continue;
      if (!value.isfinite().all().item<bool>()) finite[rank / static_cast<std::size_t>(island_size)] = false;
    }
  }
  const bool none = std::none_of(finite.begin(), finite.end(), [](bool each) { return each; });
  return none ? std::vector<bool>(finite.size(), true) : finite;
}

}  // namespace

WholeState finished(const TrainedModel& outline, const Options& options, const checkpoint::Manifest& manifest,
                    const std::vector<checkpoint::Part>& parts) {
  Options as_it_was = options;
  as_it_was.island_size = manifest.island_size;
  as_it_was.zero = manifest.zero;
  as_it_was.rate_factor = 0;  // a Core makes no inner step
  const auto workers = static_cast<std::size_t>(manifest.workers);
  auto clusters = Cluster::in_process(manifest.workers);
  std::vector<checkpoint::Part> after(workers);
  std::vector<std::exception_ptr> failures(workers);
  WholeState state;
  std::vector<std::map<std::string, std::int64_t>> inner_numbers(workers);
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < workers; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        TrainedModel blank = blank_from(outline);
        blank.second_moments = [](const auto& trained) { return std::vector<SecondMoment>(trained.size()); };
        Core core(clusters[rank], std::move(blank), as_it_was);
        PartReader reader(parts[rank], checkpoint::worker_file(static_cast<int>(rank)));
        core.visit(reader);
        core.finish();
        PartWriter writer(after[rank], {});
        core.visit(writer);
        take_inner_numbers(core, outline, parts[rank], inner_numbers[rank]);
      } catch (...) {
        failures[rank] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }

  const at::NoGradGuard no_grad;
  Assembly assembly(outline);
  // After finish() all islands have the same.
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(manifest.island_size); ++rank) {
    for (const auto& [name, value] : after[rank].tensors) {
      for (const std::string_view prefix : {kLive, kMomentum}) {
        if (name.starts_with(prefix)) assembly.add(prefix, std::string_view(name).substr(prefix.size()), "", value);
      }
    }
  }
  for (const std::string_view prefix : {"buffers/", "exchange/rates/"}) take_prefixed(after.front(), prefix, state);
  state.integers["steps"] = after.front().integers.at("steps");
  const std::vector<bool> usable = islands_with_finite_state(parts, manifest.island_size);
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    if (!usable[rank / static_cast<std::size_t>(manifest.island_size)]) continue;
    for (const auto& [name, value] : parts[rank].tensors) {
      if (const auto inner = parse_inner(name)) assembly.add(kInner, inner->stretch, inner->what, value);
    }
  }
  for (const auto& numbers : inner_numbers) {
    for (const auto& [name, value] : numbers) {
      auto& most = state.integers[name];
      most = std::max(most, value);
    }
  }
  for (const std::string_view prefix : {kMine, kAgreement}) take_prefixed(parts.front(), prefix, state);
  assembly.into(state);
  return state;
}

WholeReader::WholeReader(Group& group, std::shared_ptr<Communicator> communicator, const TrainedModel& outline,
                         const std::vector<TrainedTensor>& trained, WholeState state)
    : communicator_(std::move(communicator)), outlines_(by_name(outline)), state_(std::move(state)) {
  for (const TrainedTensor& tensor : trained) {
    if (tensor.pieces.empty()) continue;
    auto& parameters = share_a_tensor_[stretch_name(tensor.pieces.front(), outline.parameters)];
    for (const TrainedTensor::Piece& piece : tensor.pieces) {
      parameters.push_back(outline.parameters[piece.parameter].name);
    }
  }
  // All but the elements themselves; doubles by their bits.
  nlohmann::json told = {{"integers", nlohmann::json::object()},
                         {"numbers", nlohmann::json::object()},
                         {"tensors", nlohmann::json::object()}};
  if (communicator_->rank() == 0) {
    told["integers"] = state_.integers;
    for (const auto& [name, value] : state_.numbers) told["numbers"][name] = std::bit_cast<std::int64_t>(value);
    for (const auto& [name, tensor] : state_.tensors) {
      told["tensors"][name] = {{"dtype", static_cast<int>(tensor.scalar_type())}, {"sizes", tensor.sizes().vec()}};
    }
  }
  told = nlohmann::json::parse(group.gather(told.dump()).front());
  if (communicator_->rank() != 0) take_outlines(told);
  // Who shows a thing of their own may want to see it at once.
  for (auto& [name, tensor] : state_.tensors) {
    if (name.starts_with(kMine)) tensor = take(name);
  }
}

void WholeReader::take_outlines(const nlohmann::json& told) {
  state_.integers = told["integers"];
  for (const auto& [name, bits] : told["numbers"].items()) {
    state_.numbers[name] = std::bit_cast<double>(bits.get<std::int64_t>());
  }
  for (const auto& [name, tensor] : told["tensors"].items()) {
    state_.tensors[name] =
        at::empty(tensor["sizes"].get<std::vector<std::int64_t>>(),
                  at::TensorOptions(static_cast<at::ScalarType>(tensor["dtype"].get<int>())).device(at::kMeta));
  }
}

WholeReader::Resolved WholeReader::resolved(const std::string& name) const {
  const std::string_view text = name;
  for (const std::string_view prefix : {kLive, kConsensus, kMomentum}) {
    if (!text.starts_with(prefix)) continue;
    const auto stretch = parse_stretch(text.substr(prefix.size()), outlines_);
    if (!stretch) break;
    // At a beginning workers and consensus agree.
    const std::string_view from = prefix == kConsensus ? kLive : prefix;
    return {fmt::format("{}{}", from, stretch->parameter), stretch->elements, true};
  }
  if (const auto inner = parse_inner(text)) {
    if (const auto stretch = parse_stretch(inner->stretch, outlines_)) {
      return {fmt::format("{}{}{}", kInner, stretch->parameter, inner->what), stretch->elements, true};
    }
  }
  return {name, {}, false};
}

namespace {

template <typename Values>
auto& found(Values& values, const std::string& name) {
  const auto value = values.find(name);
  if (value != values.end()) return value->second;
  throw DataError(
      fmt::format("the checkpoint has no {}: it is of another model, of other options, or of another program", name));
}

}  // namespace

void WholeReader::number(const std::string& name, double& value) { value = found(state_.numbers, resolved(name).name); }
void WholeReader::number(const std::string& name, std::int64_t& value) {
  const auto inner = parse_inner(name);
  if (!inner) {
    value = found(state_.integers, resolved(name).name);
    return;
  }
  // One number for all parameters that share a tensor; what was never trained has none.
  value = 0;
  const auto sharing = share_a_tensor_.find(std::string(inner->stretch));
  if (sharing == share_a_tensor_.end()) throw DataError(fmt::format("there is no parameter {}", inner->stretch));
  for (const std::string& parameter : sharing->second) {
    const auto one = state_.integers.find(fmt::format("{}{}{}", kInner, parameter, inner->what));
    if (one != state_.integers.end()) value = std::max(value, one->second);
  }
}

void WholeReader::tensor(const std::string& name, const at::Tensor& value) {
  const Resolved what = resolved(name);
  if (what.of_parameter && value.numel() == 0) return;
  if (what.of_parameter && what.name.starts_with(kInner) && !state_.tensors.contains(what.name)) {
    const at::NoGradGuard no_grad;
    value.zero_();  // its neighbours in a tensor have such state, and it was never trained
    return;
  }
  const at::Tensor& saved = found(state_.tensors, what.name);
  const bool fits = what.of_parameter ? value.numel() == what.elements.size() : value.sizes() == saved.sizes();
  if (!fits || saved.scalar_type() != value.scalar_type()) {
    throw DataError(fmt::format("{} has another shape or dtype in the checkpoint: it is of another model", name));
  }
  if (what.name.starts_with(kMine)) {
    const at::NoGradGuard no_grad;
    value.copy_(saved);
  } else {
    places_[what.name].push_back({what.elements, value, what.of_parameter});
  }
}

at::Tensor WholeReader::take(const std::string& name) {
  constexpr std::int64_t kAtOnce = 64 << 20;
  at::Tensor& tensor = state_.tensors.at(name);
  const at::Tensor values = communicator_->rank() == 0
                                ? tensor.contiguous()
                                : at::empty(tensor.sizes(), at::TensorOptions(tensor.scalar_type()));
  const at::Tensor bytes = values.flatten().view(at::kByte);
  for (std::int64_t begin = 0; begin < bytes.numel(); begin += kAtOnce) {
    communicator_->broadcast(bytes.narrow(0, begin, std::min(kAtOnce, bytes.numel() - begin)), 0)->wait();
  }
  return values;
}

void WholeReader::fill() {
  const at::NoGradGuard no_grad;
  for (auto& [name, tensor] : state_.tensors) {
    if (name.starts_with(kMine)) continue;
    const at::Tensor values = take(name);
    for (const Place& place : places_[name]) {
      if (place.flat) {
        const at::Tensor elements = values.narrow(0, place.elements.begin, place.elements.size());
        place.value.copy_(shaped_like(elements, place.value));
      } else {
        place.value.copy_(values);
      }
    }
    tensor.reset();  // one at a time
  }
}

}  // namespace co2
