#include "comm/transfer.h"

#include <co2/error.h>

#include <algorithm>

namespace co2 {

void wait_in_round(Work& work, std::int64_t round) {
  try {
    work.wait();
  } catch (const CommError& error) {
    CommError::Where where = error.where();
    where.round = round;
    throw CommError(where, error.cause());
  }
}

TransferTime wait_for_transfer(const std::vector<WorkPtr>& works, std::int64_t bytes, std::int64_t round, int fragment,
                               Trace& trace) {
  if (works.empty()) return {};
  const bool exposed = !std::all_of(works.begin(), works.end(), [](const WorkPtr& w) { return w->completed(); });
  const Clock::time_point begin = Clock::now();
  for (const WorkPtr& work : works) wait_in_round(*work, round);
  if (exposed) trace.record({SpanKind::kWait, begin, Clock::now(), round, fragment, 0});
  TransferTime time{works.front()->started(), works.front()->finished()};
  const auto count = static_cast<std::int64_t>(works.size());
  for (std::int64_t i = 0; i < count; ++i) {
    const Work& work = *works[static_cast<std::size_t>(i)];
    const std::int64_t share = bytes * (i + 1) / count - bytes * i / count;
    trace.record({SpanKind::kTransfer, work.started(), work.finished(), round, fragment, share});
    time = {std::min(time.begin, work.started()), std::max(time.end, work.finished())};
  }
  return time;
}

void throw_if_failed(const std::vector<WorkPtr>& works, std::int64_t round) {
  for (const WorkPtr& work : works) {
    if (work->completed()) wait_in_round(*work, round);
  }
}

void wait_out(const std::vector<WorkPtr>& works) noexcept {
  for (const WorkPtr& work : works) {
    try {
      if (work) work->wait();
    } catch (...) {  // whoever waits here has nobody left to tell
    }
  }
}

}  // namespace co2
