#include "train/loop_state.h"

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
  visit_as_tensor(visitor, "losses/values", losses);
  visitor.number("validation_loss_before", validation_loss_before);
  if (!metrics_before.empty()) visit_as_tensor(visitor, "metrics_before", metrics_before);
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
