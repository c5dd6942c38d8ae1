#include "train/loop_state.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <iterator>

#include "sync/visiting.h"

namespace co2::train {

void LoopState::visit(StateVisitor& visitor) {
  visit_counter(visitor, "steps", steps);
  co2::visit(visitor, "period", period);
  visit_amount(visitor, "rate", rate);
  visit_amount(visitor, "units", units);
  visitor.number("first_loss", first_loss);
  constexpr std::size_t kMost = 100'000'000;  // a twentieth of the longest run
  losses.resize(visit_count(visitor, "losses", losses.size(), kMost));
  // As one tensor: a name for each of thousands would be most of the file's header.
  const at::Tensor values = at::empty({std::ssize(losses)}, at::kDouble);
  std::copy(losses.begin(), losses.end(), values.data_ptr<double>());
  visitor.tensor("losses/values", values);
  std::copy_n(values.const_data_ptr<double>(), losses.size(), losses.begin());
  visitor.number("validation_loss_before", validation_loss_before);
  visit_counter(visitor, "evaluated_at", evaluated_at);
  visitor.number("newest_loss", newest_loss);
  visit_counter(visitor, "newest_loss_step", newest_loss_step);
  visit_amount(visitor, "wall_seconds", wall_seconds);
  visit_amount(visitor, "training_seconds", training_seconds);
  visit_amount(visitor, "last_control", last_control);
  visit_amount(visitor, "communication/transfer_seconds", communication.transfer_seconds);
  visit_amount(visitor, "communication/exposed_seconds", communication.exposed_seconds);
  visit_counter(visitor, "communication/bytes", communication.bytes);
  visit_counter(visitor, "left_out", left_out);
  visit_counter(visitor, "metrics_lines", metrics_lines);
}

}  // namespace co2::train
