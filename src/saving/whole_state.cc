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
#include "saving/part_visitors.h"
#include "sync/named_stretches.h"

namespace co2 {

namespace {

constexpr std::string_view kLive = "live/", kConsensus = "consensus/", kMomentum = "momentum/", kInner = "inner/",
                           kMine = "mine/";

struct Stretch {
  std::string parameter;
  Range elements;
};

/// The inverse of stretch_name().
std::optional<Stretch> parse_stretch(std::string_view text, const std::map<std::string, std::int64_t>& sizes) {
  if (const auto whole = sizes.find(std::string(text)); whole != sizes.end())
    return Stretch{whole->first, {0, whole->second}};
  const auto open = text.rfind('['), colon = text.rfind(':');
  if (open == text.npos || colon == text.npos || colon < open || !text.ends_with(']')) return std::nullopt;
  const auto found = sizes.find(std::string(text.substr(0, open)));
  if (found == sizes.end()) return std::nullopt;
  Range elements{-1, -1};
  std::from_chars(text.data() + open + 1, text.data() + colon, elements.begin);
  std::from_chars(text.data() + colon + 1, text.data() + text.size() - 1, elements.end);
  if (!(0 <= elements.begin && elements.begin <= elements.end && elements.end <= found->second)) return std::nullopt;
  return Stretch{found->first, elements};
}

std::map<std::string, std::int64_t> sizes_of(const TrainedModel& outline) {
  std::map<std::string, std::int64_t> sizes;
  for (const Parameter& parameter : outline.parameters) sizes.emplace(parameter.name, parameter.tensor.numel());
  return sizes;
}

std::string name_of(const TrainedTensor::Piece& piece, const TrainedModel& outline) {
  const Parameter& parameter = outline.parameters[piece.parameter];
  return stretch_name(parameter.name, {piece.begin, piece.begin + piece.size}, parameter.tensor.numel());
}

/// The sum of what islands have of a parameter, and how many elements of it were given.
struct Sum {
  at::Tensor elements;
  std::int64_t given = 0;
};

class Assembly {
 public:
  explicit Assembly(const TrainedModel& outline) : outline_(outline), sizes_(sizes_of(outline)) {
    for (const Parameter& parameter : outline.parameters) tensors_.emplace(parameter.name, parameter.tensor);
  }

  const std::map<std::string, std::int64_t>& sizes() const { return sizes_; }

  /// `name` is PREFIX STRETCH SUFFIX. Not of a parameter: false.
  bool add(std::string_view prefix, std::string_view stretch, std::string_view suffix, const at::Tensor& value) {
    const auto where = parse_stretch(stretch, sizes_);
    if (!where) return false;
    const at::Tensor& parameter = tensors_.at(where->parameter);
    at::Tensor flat = value.flatten();
    if (value.dim() > 1 && value.sizes() == parameter.sizes()) {  // by its shape
      const at::Tensor shaped = at::empty_strided(parameter.sizes(), parameter.strides(), value.options());
      shaped.copy_(value);
      flat = in_memory_order(shaped);
    }
    Sum& sum = sums_[fmt::format("{}{}{}", prefix, where->parameter, suffix)];
    if (!sum.elements.defined()) sum.elements = at::zeros({parameter.numel()}, value.options());
    sum.elements.narrow(0, where->elements.begin, where->elements.size()).add_(flat);
    sum.given += where->elements.size();
    return true;
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
  const TrainedModel& outline_;
  std::map<std::string, std::int64_t> sizes_;
  std::map<std::string, at::Tensor> tensors_;  // outlines, by name
  std::map<std::string, Sum> sums_;
};

/// Numbers of an optimizer's tensor are told once, under the name of its first piece: all parameters in it have them.
void take_inner_numbers(const Core& core, const TrainedModel& outline, const checkpoint::Part& part,
                        WholeState& state) {
  for (const TrainedTensor& trained : core.trained()) {
    if (trained.pieces.empty()) continue;
    const std::string prefix = fmt::format("{}{}/", kInner, name_of(trained.pieces.front(), outline));
    for (auto number = part.integers.lower_bound(prefix); number != part.integers.end(); ++number) {
      if (!number->first.starts_with(prefix)) break;
      const std::string what = number->first.substr(prefix.size());
      for (const TrainedTensor::Piece& piece : trained.pieces) {
        auto& value = state.integers[fmt::format("{}{}/{}", kInner, outline.parameters[piece.parameter].name, what)];
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
  const auto workers = static_cast<std::size_t>(manifest.workers);
  auto clusters = Cluster::in_process(manifest.workers);
  std::vector<checkpoint::Part> after(workers);
  std::vector<std::exception_ptr> failures(workers);
  WholeState state;
  std::vector<WholeState> inner_numbers(workers);
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < workers; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        Core core(clusters[rank], blank_from(outline), as_it_was);
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
  for (const auto& [name, value] : after.front().tensors) {
    if (name.starts_with("buffers/")) state.tensors.emplace(name, value);
  }
  for (const auto& [name, value] : after.front().numbers) {
    if (name.starts_with("exchange/rates/")) state.numbers.emplace(name, value);
  }
  for (const auto& [name, value] : after.front().integers) {
    if (name == "steps" || name.starts_with("exchange/rates/")) state.integers.emplace(name, value);
  }
  const std::vector<bool> usable = islands_with_finite_state(parts, manifest.island_size);
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    if (!usable[rank / static_cast<std::size_t>(manifest.island_size)]) continue;
    for (const auto& [name, value] : parts[rank].tensors) {
      const std::size_t slash = name.rfind('/');
      if (!name.starts_with(kInner) || slash < kInner.size()) continue;
      const std::string_view text = name;
      assembly.add(kInner, text.substr(kInner.size(), slash - kInner.size()), text.substr(slash), value);
    }
  }
  for (const WholeState& numbers : inner_numbers) {
    for (const auto& [name, value] : numbers.integers) {
      auto& most = state.integers[name];
      most = std::max(most, value);
    }
  }
  for (const auto& [name, value] : parts.front().tensors) {
    if (name.starts_with(kMine)) state.tensors.emplace(name, value);
  }
  for (const auto& [name, value] : parts.front().integers) {
    if (name.starts_with(kMine)) state.integers.emplace(name, value);
  }
  for (const auto& [name, value] : parts.front().numbers) {
    if (name.starts_with(kMine)) state.numbers.emplace(name, value);
  }
  assembly.into(state);
  return state;
}

WholeReader::WholeReader(Group& group, std::shared_ptr<Communicator> communicator, const TrainedModel& outline,
                         const std::vector<TrainedTensor>& trained, WholeState state)
    : communicator_(std::move(communicator)), sizes_(sizes_of(outline)), state_(std::move(state)) {
  for (const TrainedTensor& tensor : trained) {
    if (tensor.pieces.empty()) continue;
    auto& parameters = share_a_tensor_[name_of(tensor.pieces.front(), outline)];
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
    const auto stretch = parse_stretch(text.substr(prefix.size()), sizes_);
    if (!stretch) break;
    // At a beginning workers and consensus agree.
    const std::string_view from = prefix == kConsensus ? kLive : prefix;
    return {fmt::format("{}{}", from, stretch->parameter), stretch->elements, true};
  }
  const std::size_t slash = text.rfind('/');
  if (text.starts_with(kInner) && slash > kInner.size()) {
    if (const auto stretch = parse_stretch(text.substr(kInner.size(), slash - kInner.size()), sizes_)) {
      return {fmt::format("{}{}{}", kInner, stretch->parameter, text.substr(slash)), stretch->elements, true};
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
  const std::size_t slash = name.rfind('/');
  if (!name.starts_with(kInner) || slash < kInner.size()) {
    value = found(state_.integers, resolved(name).name);
    return;
  }
  // One number for all parameters that share a tensor; what was never trained has none.
  value = 0;
  const std::string stretch = name.substr(kInner.size(), slash - kInner.size());
  const auto sharing = share_a_tensor_.find(stretch);
  if (sharing == share_a_tensor_.end()) throw DataError(fmt::format("there is no parameter {}", stretch));
  for (const std::string& parameter : sharing->second) {
    const auto one = state_.integers.find(fmt::format("{}{}{}", kInner, parameter, name.substr(slash)));
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
        in_memory_order(place.value).copy_(values.narrow(0, place.elements.begin, place.elements.size()));
      } else {
        place.value.copy_(values);
      }
    }
    tensor.reset();  // one at a time
  }
}

}  // namespace co2
