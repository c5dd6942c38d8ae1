#pragma once

#include <ATen/core/Tensor.h>
#include <co2/communicator.h>
#include <co2/options.h>
#include <co2/parameters.h>
#include <co2/state.h>

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/range.h"
#include "checkpoint/manifest.h"
#include "checkpoint/part.h"
#include "cluster/group.h"

namespace co2 {

/// Of parameters, without values, by name.
using Outlines = std::map<std::string, at::Tensor>;

/// What a run has come to, whatever its layout was: of every parameter its value, outer momentum and inner state, each
/// whole and flat, with elements in the order in which memory has them; buffers and a user's own things as they were.
struct WholeState {
  std::map<std::string, at::Tensor> tensors;  ///< "live/NAME", "momentum/NAME", "inner/NAME/FIELD", "buffers/NAME", …
  std::map<std::string, std::int64_t> integers;
  std::map<std::string, double> numbers;
};

/// Puts all parts of a checkpoint together. Its workers come to life once more, in this process, with the layout that
/// they had, and apply what was in flight: so it is what finish() would have left at that step. Inner state is the mean
/// over islands, without those that have numbers in it which are not finite; what is a user's own is worker 0's. Needs
/// the memory of all of them.
WholeState finished(const TrainedModel& outline, const Options& options, const checkpoint::Manifest& manifest,
                    const std::vector<checkpoint::Part>& parts);

/// Puts a WholeState in place on workers of any layout. It is shown where everything belongs, and fill() brings it
/// there, tensor by tensor from rank 0: nobody else ever has more than one of them.
class WholeReader final : public StateVisitor {
 public:
  /// Collective. `state` is rank 0's.
  WholeReader(Group& group, std::shared_ptr<Communicator> communicator, const TrainedModel& outline,
              const std::vector<TrainedTensor>& trained, WholeState state);

  bool reads() const override { return true; }
  void tensor(const std::string& name, const at::Tensor& value) override;
  void number(const std::string& name, double& value) override;
  void number(const std::string& name, std::int64_t& value) override;

  /// Collective, after everything was shown.
  void fill();

 private:
  struct Place {
    Range elements;
    at::Tensor value;
    bool flat = false;  // in the order of memory
  };
  /// A name without what says which elements of a parameter are meant.
  struct Resolved {
    std::string name;
    Range elements;
    bool of_parameter = false;
  };
  Resolved resolved(const std::string& name) const;
  void take_outlines(const nlohmann::json& told);
  /// Rank 0's, on all workers.
  at::Tensor take(const std::string& name);

  std::shared_ptr<Communicator> communicator_;
  const Outlines outlines_;
  // Which parameters an optimizer's tensor has elements of, by the name of its first piece.
  std::map<std::string, std::vector<std::string>> share_a_tensor_;
  WholeState state_;
  std::map<std::string, std::vector<Place>> places_;
};

}  // namespace co2
