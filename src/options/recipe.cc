#include "options/recipe.h"

#include <co2/error.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "options/wires.h"

namespace co2 {

namespace {

constexpr int kFirstLocalSteps = 12;  // where automatic choice stands before it has measured anything
constexpr double kHighestRateFactor = 1000;
constexpr double kBurst = 4;   // times the usual progress: above what batches and optimizers do by themselves
constexpr int kFragments = 4;  // more of them did not learn better (docs/choosing-local-steps.md)

/// The family of docs/algorithm.md as values of one mechanism.
Recipe defaults(Strategy strategy, int local_steps) {
  Recipe recipe;
  recipe.strategy = strategy;
  recipe.local_steps = local_steps;
  switch (strategy) {
    case Strategy::kNone: recipe.exchange = Recipe::Exchange::kNothing; break;
    case Strategy::kDdp:
      recipe.exchange = Recipe::Exchange::kGradients;
      recipe.local_steps = 1;
      break;
    case Strategy::kLocalSgd: recipe.delay = 0; break;
    case Strategy::kSlowMo:
      recipe.delay = 0;
      recipe.momentum = 0.5;
      recipe.rate_units = true;
      break;
    case Strategy::kDiLoCo:
      recipe.delay = 0;
      recipe.outer_rate = 0.7;
      recipe.momentum = 0.9;
      recipe.nesterov = true;
      break;
    case Strategy::kStreamingDiLoCo:
      recipe.fragments = std::min(kFragments, local_steps);
      recipe.outer_rate = 0.7;
      recipe.momentum = 0.9;
      recipe.nesterov = true;
      recipe.restart = Restart::kMix;
      recipe.mix = 0.5;
      break;
    case Strategy::kEagerDiLoCo:
      recipe.outer_rate = 0.7;
      recipe.momentum = 0.9;
      recipe.nesterov = true;
      recipe.eager = true;
      break;
    case Strategy::kOverlapLocalSgd:
      // The anchor of Wang et al. is our consensus: averaging parameters and averaging their distance from the anchor
      // move it equally, and their pull-back by 0.6 leaves a worker 0.4 of its own parameters.
      recipe.momentum = 0.7;
      recipe.restart = Restart::kMix;
      recipe.mix = 0.4;
      break;
    case Strategy::kCo2Paper:
      recipe.momentum = 0.2;
      recipe.rate_units = true;
      recipe.penalty = true;
      recipe.clip = kBurst;
      break;
    case Strategy::kCo2:
      recipe.fragments = std::min(kFragments, local_steps);
      recipe.momentum = 0.3;
      recipe.momentum_from = 16;
      recipe.rate_units = true;
      recipe.penalty = true;
      recipe.clip = kBurst;
      recipe.restart = Restart::kKeep;
      break;
  }
  return recipe;
}

template <typename T>
[[noreturn]] void reject(std::string_view option, T value, std::string_view allowed) {
  throw OptionError(fmt::format("{} = {} is not allowed: it must be {}", option, value, allowed));
}

// NaN fails every comparison, so each check states what is allowed rather than what is not.
void check_ranges(const Recipe& r) {
  // Strategies without rounds refuse what is about them, whatever it is: check_meaning().
  const bool has_rounds = r.exchange == Recipe::Exchange::kProgress;
  if (!(r.max_local_steps >= 1 && r.max_local_steps <= 1'000'000)) {
    reject("max_local_steps", r.max_local_steps, "1 to 1000000");
  }
  if (!(r.exchange_share > 0 && r.exchange_share <= 1))
    reject("exchange_share", r.exchange_share, "above 0, at most 1");
  if (r.adaptive && !(r.fragments >= 1 && r.fragments <= r.max_local_steps)) {
    reject("fragments", r.fragments, fmt::format("1 to max_local_steps ({})", r.max_local_steps));
  }
  if (!(r.local_steps >= 1 && r.local_steps <= 1'000'000))
    reject("local_steps", r.local_steps, "1 to 1000000, or auto");
  if (has_rounds && !r.adaptive && !(r.fragments >= 1 && r.fragments <= r.local_steps)) {
    reject("fragments", r.fragments, fmt::format("1 to local_steps ({})", r.local_steps));
  }
  if (r.island_size < 1) reject("island_size", r.island_size, "1 (every worker is one) to the number of workers");
  if (!(r.zero >= 0 && r.zero <= 3)) reject("zero", r.zero, "0 to 3");
  if (has_rounds && r.delay && !(*r.delay >= 0 && *r.delay <= r.local_steps)) {
    reject("delay", *r.delay, fmt::format("0 (blocking) to local_steps ({})", r.local_steps));
  }
  if (!(r.outer_rate > 0 && r.outer_rate <= 10)) reject("outer_rate", r.outer_rate, "above 0, at most 10");
  if (!(r.momentum >= 0 && r.momentum < 1)) reject("momentum", r.momentum, "at least 0, below 1");
  if (!(r.clip >= 0 && std::isfinite(r.clip))) reject("clip", r.clip, "0 (off) or a positive number");
  if (!(r.mix >= 0 && r.mix <= 1)) reject("mix", r.mix, "0 to 1");
  if (!(r.agree_moments >= 0 && r.agree_moments <= 1'000'000)) {
    reject("agree_moments", r.agree_moments, "0 (off) to 1000000");
  }
  if (!(r.rate_factor >= 0 && r.rate_factor <= kHighestRateFactor)) {
    reject("rate_factor", r.rate_factor, fmt::format("0 (by itself) to {}", kHighestRateFactor));
  }
  if (!(r.accumulation_steps >= 1)) reject("accumulation_steps", r.accumulation_steps, "at least 1");
  if (!(r.bucket_bytes >= 1024 && r.bucket_bytes <= (std::int64_t{1} << 30))) {
    reject("bucket_bytes", r.bucket_bytes, "1024 to 1073741824");
  }
}

/// Options that mean nothing to a strategy are refused rather than ignored.
void check_meaning(const Options& o, const Recipe& r) {
  if (r.exchange != Recipe::Exchange::kProgress) {
    const auto refuse = [&](std::string_view option, bool given) {
      if (!given) return;
      throw OptionError(
          fmt::format("{} has no meaning for strategy '{}', which has no outer step: leave it out, or "
                      "choose another strategy",
                      option, name(r.strategy)));
    };
    refuse("fragments", o.fragments.has_value());
    refuse("delay", o.delay.has_value());
    refuse("outer_rate", o.outer_rate.has_value());
    refuse("momentum", o.momentum.has_value());
    refuse("nesterov", o.nesterov.has_value());
    refuse("penalty", o.penalty.has_value());
    refuse("clip", o.clip.has_value());
    refuse("clip_mode", o.clip_mode.has_value());
    refuse("restart", o.restart.has_value());
    refuse("mix", o.mix.has_value());
    refuse("wire", o.wire != Wire::kPlain && o.wire != Wire::kAuto);
    refuse("checksum", o.checksum);
    refuse("agree_moments", o.agree_moments != 0);
    return;
  }
  if (r.eager) {
    // What a worker expects of its own part holds only for a linear rule, and for what is one round late.
    const auto refuse = [&](std::string_view option, bool given) {
      if (!given) return;
      throw OptionError(
          fmt::format("{} can't be changed for strategy '{}', whose workers run ahead of an average of the whole model "
                      "that is one round late: leave it out, or choose another strategy",
                      option, name(r.strategy)));
    };
    refuse("fragments", r.fragments != 1);
    refuse("delay", o.delay && *o.delay != r.local_steps);
    refuse("restart", r.restart != Restart::kPaper);
    refuse("penalty", r.penalty);
    refuse("clip", r.clip > 0);
  }
  const bool keeps_nothing = r.restart == Restart::kPaper || (r.restart == Restart::kMix && r.mix == 0);
  if (in_blocks(r.wire) && keeps_nothing) {
    throw OptionError(fmt::format(
        "wire = {} is not allowed with restart '{}'{}, which would throw away what rounding leaves behind: use wire = "
        "bfloat16 or plain, or restart 'keep', as strategy 'co2' does",
        name(o.wire), name(r.restart), r.restart == Restart::kMix ? " and mix = 0" : ""));
  }
  if (o.checksum && !in_blocks(r.wire)) {
    throw OptionError(fmt::format(
        "checksum has no meaning for wire = {}, which the network adds up: use int8, int4 or int2, or leave "
        "it out",
        name(r.wire)));
  }
  if (o.mix && r.restart != Restart::kMix) {
    throw OptionError(fmt::format("mix = {} has no meaning with restart '{}': use restart 'mix', or leave it out",
                                  *o.mix, name(r.restart)));
  }
  if (r.restart == Restart::kMix && r.mix == 0 && r.delay != 0) {
    throw OptionError(
        "mix = 0 is not allowed with a delay: the steps between a launch and its apply would be thrown away. Choose a "
        "mix above 0, or restart 'paper'");
  }
  if (o.clip_mode && r.clip == 0) {
    throw OptionError(fmt::format("clip_mode '{}' has no meaning while clip is off: set clip too", name(*o.clip_mode)));
  }
  if (o.clip_mode && *o.clip_mode != ClipMode::kUsual && !o.clip) {
    throw OptionError(
        fmt::format("clip_mode '{}' needs a limit in units of the inner rate: set clip too", name(*o.clip_mode)));
  }
  if (r.clip > 0 && r.clip < 1 && r.clip_mode == ClipMode::kUsual) {
    reject("clip", r.clip, "0 (off) or at least 1, times the usual progress, with clip_mode 'usual'");
  }
  if (r.adaptive && o.delay && *o.delay != 0) {
    throw OptionError(
        fmt::format("delay = {} needs a fixed number of steps per round: set local_steps too, or leave "
                    "delay out",
                    *o.delay));
  }
  if (r.adaptive && r.restart == Restart::kPaper && r.fragments > 1) {
    throw OptionError(
        fmt::format("fragments = {} with restart 'paper' needs a fixed number of steps per round: set "
                    "local_steps too",
                    r.fragments));
  }
  if (r.restart == Restart::kPaper && r.delay && *r.delay != 0 && *r.delay != r.local_steps) {
    throw OptionError(
        fmt::format("delay = {} is not allowed with restart 'paper': it must be 0 or local_steps ({}), "
                    "otherwise the steps between a launch and its apply would be thrown away",
                    *r.delay, r.local_steps));
  }
}

}  // namespace

double momentum_of(const Recipe& recipe, int local_steps) {
  return local_steps < recipe.momentum_from ? 0 : recipe.momentum;
}

Recipe resolve(const Options& o) {
  const bool automatic = o.local_steps == kAuto;
  Recipe r = defaults(o.strategy, automatic ? std::min(kFirstLocalSteps, o.max_local_steps) : o.local_steps);
  r.adaptive = automatic && r.exchange == Recipe::Exchange::kProgress;
  r.fixed_fragments = r.adaptive && o.fragments.has_value();
  r.max_local_steps = o.max_local_steps;
  r.exchange_share = o.exchange_share;
  r.agree_moments = o.agree_moments;
  r.rate_factor = o.rate_factor;
  r.checksum = o.checksum;
  r.accumulation_steps = o.accumulation_steps;
  r.bucket_bytes = o.bucket_bytes;
  r.island_size = o.island_size;
  r.zero = o.zero;
  r.compute = o.compute;
  if (o.fragments) r.fragments = *o.fragments;
  if (o.delay) r.delay = *o.delay;
  if (o.outer_rate) r.outer_rate = *o.outer_rate;
  if (o.momentum) {
    r.momentum = *o.momentum;
    r.momentum_from = 1;
  }
  if (o.nesterov) r.nesterov = *o.nesterov;
  if (o.penalty) r.penalty = *o.penalty;
  if (o.clip) r.clip = *o.clip;
  if (o.clip_mode) r.clip_mode = *o.clip_mode;
  if (o.restart) r.restart = *o.restart;
  if (o.mix) r.mix = *o.mix;
  if (o.restart && *o.restart == Restart::kMix && !o.mix && r.mix == 0) r.mix = 0.5;
  const bool rounding_is_free = r.exchange == Recipe::Exchange::kProgress && r.restart == Restart::kKeep;
  r.adaptive_wire = o.wire == Wire::kAuto && rounding_is_free && r.adaptive;
  r.wire = o.wire != Wire::kAuto ? o.wire : rounding_is_free ? Wire::kInt4 : Wire::kPlain;
  check_ranges(r);
  check_meaning(o, r);
  // The steps since a launch are on the wire only if the next launch is the moment of the apply. With one fragment that
  // is what no delay means, whatever the length of a round.
  if (r.restart == Restart::kPaper && !r.delay && !r.adaptive) r.delay = r.local_steps;
  if (!r.adaptive) {  // then all rounds are alike
    r.momentum = momentum_of(r, r.local_steps);
    r.momentum_from = 1;
  }
  if (r.adaptive && r.fixed_fragments) r.local_steps = std::max(r.local_steps, r.fragments);
  return r;
}

Options filled_in(const Options& options) {
  const Recipe recipe = resolve(options);
  Options result = options;
  // A blank is filled in if it may be: `ddp`, say, refuses to be told a momentum, even the one that it would use. What
  // follows an automatic τ stays blank, or it would no longer follow; so does the wire, which follows the number of
  // workers and their dtype too.
  const auto fill = [&](auto& field, const auto& value) {
    if (field) return;
    field = value;
    try {
      resolve(result);
    } catch (const OptionError&) {
      field.reset();
    }
  };
  if (!recipe.adaptive) fill(result.fragments, recipe.fragments);
  if (recipe.delay) fill(result.delay, *recipe.delay);
  fill(result.outer_rate, recipe.outer_rate);
  if (recipe.momentum_from == 1) fill(result.momentum, recipe.momentum);
  fill(result.nesterov, recipe.nesterov);
  fill(result.penalty, recipe.penalty);
  fill(result.clip, recipe.clip);
  fill(result.clip_mode, recipe.clip_mode);
  fill(result.restart, recipe.restart);
  fill(result.mix, recipe.mix);
  return result;
}

}  // namespace co2
