#pragma once

#include <co2/communicator.h>
#include <co2/trace.h>

#include <vector>

namespace co2 {

/// From the start of the first of several collectives to the end of the last.
struct TransferTime {
  Clock::time_point begin;
  Clock::time_point end;
};

/// Waits on the training thread until all works are over, and puts their transfers and the exposed wait, if there was
/// one, on the timeline. Throws CommError with the round.
TransferTime wait_for_transfer(const std::vector<WorkPtr>& works, std::int64_t bytes, std::int64_t round, int fragment,
                               Trace& trace);

/// Waits; a CommError that it throws names the round.
void wait_in_round(Work& work, std::int64_t round);

/// Throws CommError, with the round, if one of the works is over and has failed. Never blocks.
void throw_if_failed(const std::vector<WorkPtr>& works, std::int64_t round);

/// Waits until none of the works uses its buffers any more; for destructors, so it swallows failures: a peer that is
/// gone is often why they run. Works may be null.
void wait_out(const std::vector<WorkPtr>& works) noexcept;

}  // namespace co2
