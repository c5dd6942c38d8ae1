#include "sync/eager.h"

#include <ATen/ATen.h>

#include <utility>

#include "trace/bytes.h"

namespace co2 {

Eager::Eager(const Recipe& recipe, std::vector<at::Tensor> live, int islands)
    : recipe_(recipe), live_(std::move(live)), islands_(islands) {
  std::int64_t numel = 0;
  for (const at::Tensor& part : live_) numel += part.numel();
  const at::TensorOptions options = live_.empty() ? at::TensorOptions() : live_.front().options().requires_grad(false);
  ahead_ = at::zeros({numel}, options);
  momentum_ = at::zeros({numel}, options);
}

void Eager::add_to_live(double scale) {
  std::int64_t begin = 0;
  for (const at::Tensor& part : live_) {
    part.add_(ahead_.narrow(0, begin, part.numel()), scale);
    begin += part.numel();
  }
}

void Eager::take_back() {
  add_to_live(-1);
  ahead_.zero_();
}

void Eager::remember(const std::vector<at::Tensor>& consensus, const std::vector<Range>& rests) {
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < live_.size(); ++i) {
    at::Tensor place = ahead_.narrow(0, begin, live_[i].numel());
    at::sub_out(place, consensus[i], live_[i]);
    begin += live_[i].numel();
  }
  for (const Range& each : rests) {
    for (const at::Tensor& forgotten : {ahead_, momentum_}) forgotten.narrow(0, each.begin, each.size()).zero_();
  }
}

void Eager::finish() {
  take_back();
  momentum_.zero_();
}

// S = β S + d;   ahead = −α/G (d + β S)   Nesterov,   or   −α/G S   heavy ball
void Eager::go_ahead() {
  momentum_.mul_(recipe_.momentum).add_(ahead_);
  if (recipe_.nesterov) {
    ahead_.add_(momentum_, recipe_.momentum);
  } else {
    ahead_.copy_(momentum_);
  }
  ahead_.mul_(-recipe_.outer_rate / islands_);
  add_to_live(1);
}

std::int64_t Eager::bytes() const { return bytes_of(ahead_) + bytes_of(momentum_); }

}  // namespace co2
