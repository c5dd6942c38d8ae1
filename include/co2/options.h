#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace co2 {

/// What is exchanged between workers and when. docs/algorithm.md has the table; each one is a set of values for the
/// others here.
enum class Strategy {
  kNone,             ///< nothing: every worker on its own, the upper limit of speed
  kDdp,              ///< gradients, every step, overlapped with backward
  kLocalSgd,         ///< progress every local_steps, blocking, plain average
  kSlowMo,           ///< the same with heavy-ball outer momentum
  kDiLoCo,           ///< the same with Nesterov outer momentum
  kStreamingDiLoCo,  ///< fragments, overlapped, mixed back half and half
  kEagerDiLoCo,      ///< overlapped, whole model; workers go on with their own part of what is on its way
  kOverlapLocalSgd,  ///< overlapped, workers are pulled back to an anchor with momentum
  kCo2Paper,         ///< overlapped, whole model, one round stale: the ICLR 2024 rule
  kCo2,              ///< overlapped fragments that keep their own progress: the default
};

/// How a worker goes on from the new consensus.
enum class Restart {
  kPaper,  ///< live = consensus
  kKeep,   ///< live = live + sent - move: what was not sent stays with the worker
  kMix,    ///< live = (1 - mix) consensus + mix live
};

enum class ClipMode {
  kUsual,  ///< a fragment's progress scaled down to at most `clip` times its usual size: only bursts are touched
  kValue,  ///< each element of the outer momentum within [-clip, clip], in units of the inner rate (the paper)
  kNorm,   ///< a fragment's outer momentum scaled down to at most this 2-norm, in units of the inner rate
};

/// The form in which progress goes over the network.
enum class Wire {
  kPlain,     ///< the parameters' own dtype
  kBfloat16,  ///< two bytes per element; what rounding leaves behind stays with the worker and is sent later
  kInt8,  ///< blocks of whole numbers of 8 bits with a scale (docs/wire.md); rounding leaves nothing behind for good
  kInt4,  ///< of 4 bits
  kInt2,  ///< of 2 bits: -1, 0 and 1
  kAuto,  ///< with Restart::kKeep int4, or int2 where that makes short rounds possible; kPlain otherwise
};

/// What forward and backward compute in.
enum class Compute {
  kPlain,     ///< the parameters' own dtype
  kBfloat16,  ///< bfloat16 copies of the parameters; the parameters themselves, in their own dtype, are in the shard
};

/// For Options::local_steps: chosen and adapted while training (docs/choosing-local-steps.md).
inline constexpr int kAuto = -1;

/// What a user can set. Fields left empty take the strategy's own value (resolve()). An option that the strategy can't
/// honour is an error.
struct Options {
  Strategy strategy = Strategy::kCo2;
  /// tau: steps between two exchanges of a fragment, 1..1000000, or kAuto. (`ddp` exchanges in every step.)
  int local_steps = kAuto;
  int max_local_steps = 256;              ///< the highest tau that kAuto may choose, 1..1000000
  double exchange_share = 0.05;           ///< kAuto: share of the time that exchanges may take from training, > 0..1
  std::optional<int> fragments = {};      ///< P: parts of the model that are exchanged in turn, 1..local_steps
  std::optional<int> delay = {};          ///< delta: steps from a launch to its apply, 0 (blocking)..local_steps
  std::optional<double> outer_rate = {};  ///< alpha: size of the outer step, > 0..10
  std::optional<double> momentum = {};    ///< beta: outer momentum, 0..<1
  std::optional<bool> nesterov = {};      ///< look ahead along the outer momentum
  std::optional<bool> penalty = {};       ///< divide progress by its staleness gap
  std::optional<double> clip = {};        ///< phi: what clip_mode limits to; 0 is off
  std::optional<ClipMode> clip_mode = {};
  std::optional<Restart> restart = {};
  std::optional<double> mix = {};  ///< rho: the worker's own share in Restart::kMix, 0..1; above 0 with a delay
  Wire wire = Wire::kAuto;
  /// Steps between two averages of Adam's second moments over workers, in the background; 0: each has its own. For
  /// Adam, AdamW and RMSprop; in islands of several workers it needs zero >= 1.
  int agree_moments = 0;
  /// Times the inner optimizer's rate, on every worker, in a Synchronizer's step. 0: as much as is measured to be
  /// missing where short rounds average Adam's steps, so that `ddp`'s rate is right; otherwise 1
  /// (docs/choosing-local-steps.md).
  double rate_factor = 0;
  bool checksum = false;                 ///< int8, int4 and int2 only: what arrives is compared with what was sent
  int accumulation_steps = 1;            ///< backward passes per step(); `ddp` sends after the last one, >= 1
  std::int64_t bucket_bytes = 25 << 20;  ///< about how much one collective carries, 1 KiB..1 GiB
  int island_size = 1;                   ///< K: workers that share gradients in every step; K divides their number
  int zero = 0;  ///< ZeRO inside an island: 1 shards the inner optimizer's state, 2 the gradients too, 3 also the
                 ///< parameters (of UnitModules), 0..3; 0 in islands of one, unless there is only one worker
  Compute compute = Compute::kPlain;
};

/// The options with blanks filled in as the strategy has it; throws OptionError that names the option, value and range
/// if they can't be honoured. What a strategy has no use for, or chooses while training (Pace), stays blank.
Options filled_in(const Options& options);

std::string_view name(Strategy strategy);
std::string_view name(Restart restart);
std::string_view name(ClipMode mode);
std::string_view name(Wire wire);
std::string_view name(Compute compute);
/// The inverse of name(); throws OptionError with the closest valid name.
Strategy strategy_from_name(std::string_view text);
Restart restart_from_name(std::string_view text);
ClipMode clip_mode_from_name(std::string_view text);
Wire wire_from_name(std::string_view text);
Compute compute_from_name(std::string_view text);
const std::vector<Strategy>& all_strategies();

}  // namespace co2
