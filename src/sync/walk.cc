#include "sync/walk.h"

#include <algorithm>

#include "comm/transfer.h"

namespace co2 {

std::shared_ptr<Walk> Walk::without_waiting(std::shared_ptr<StateVisitor> visitor, std::function<void(bool)> over) {
  return std::shared_ptr<Walk>(new Walk(std::move(visitor), std::move(over)));
}

Walk::~Walk() {
  if (over_) over_(missing_ == 0);
}

void Walk::arriving(const std::vector<WorkPtr>& works, std::int64_t round, Later& later,
                    std::function<void(StateVisitor&)> show) {
  const bool here = std::all_of(works.begin(), works.end(), [](const WorkPtr& w) { return !w || w->completed(); });
  if (!here && kept_) {
    ++missing_;
    later.shows_.push_back({shared_from_this(), std::move(show)});
    return;
  }
  for (const WorkPtr& work : works) {
    if (work) wait_in_round(*work, round);
  }
  show(visitor_);
}

void Walk::Later::show() {
  for (auto& [walk, show] : std::exchange(shows_, {})) {
    show(walk->visitor_);
    --walk->missing_;
  }
}

}  // namespace co2
