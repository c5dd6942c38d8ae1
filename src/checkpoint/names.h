#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace co2::checkpoint {

constexpr std::int64_t kLastStep = 999'999'999'999;  ///< twelve digits, so that names sort like steps
constexpr int kMostWorkers = 100'000;                ///< five digits

/// "worker-00007.safetensors"
std::string worker_file(int worker);

/// Whether a name from a manifest may be put after a folder's: a plain, visible one that leads nowhere else.
bool is_plain_name(std::string_view name);

/// What the name of a folder of a run's checkpoints says.
struct StepName {
  enum class Kind {
    kWhole,    ///< "step-000000000120"
    kOld,      ///< "step-000000000120.old": as good, while another one takes its place
    kPartial,  ///< ".step-000000000120.partial-TOKEN": being written, or removed
  };
  Kind kind = Kind::kWhole;
  std::int64_t step = 0;
  std::string token{};
};

/// Throws DataError for a step or token that no name can have.
std::string text_of(const StepName& name);
std::optional<StepName> parse_step_name(std::string_view text);

}  // namespace co2::checkpoint
