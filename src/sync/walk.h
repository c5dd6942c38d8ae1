#pragma once

#include <co2/communicator.h>
#include <co2/state.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace co2 {

/// A visitor on its way through all that defines the future of a run.
///
/// What is on the wire when it comes by is waited for. Or, in a walk that shall not wait, it is shown later: by whoever
/// takes it from the wire, before anything is done with it. Such a walk lives until the last of it was shown, or
/// dropped.
class Walk : public std::enable_shared_from_this<Walk> {
 public:
  /// Waits.
  explicit Walk(StateVisitor& visitor) : visitor_(visitor) {}
  /// Does not. `over` is called at its end: whether all of it was shown.
  static std::shared_ptr<Walk> without_waiting(std::shared_ptr<StateVisitor> visitor, std::function<void(bool)> over);
  ~Walk();
  Walk(const Walk&) = delete;
  Walk& operator=(const Walk&) = delete;

  StateVisitor& visitor() { return visitor_; }
  bool reads() const { return visitor_.reads(); }

  /// Runs the walk itself: one that throws is not complete.
  template <typename Body>
  void guard(const Body& body) {
    ++missing_;
    body();
    --missing_;
  }

  /// What is to be shown when it has arrived. Belongs to whoever waits for that.
  class Later {
   public:
    bool empty() const { return shows_.empty(); }
    /// It has arrived.
    void show();

   private:
    friend class Walk;
    struct Show {
      std::shared_ptr<Walk> walk;
      std::function<void(StateVisitor&)> show;
    };
    std::vector<Show> shows_;
  };

  /// Shows what is here once all of `works` are over (some may be null): now, or else `later`. Throws CommError.
  void arriving(const std::vector<WorkPtr>& works, std::int64_t round, Later& later,
                std::function<void(StateVisitor&)> show);

 private:
  Walk(std::shared_ptr<StateVisitor> visitor, std::function<void(bool)> over)
      : kept_(std::move(visitor)), visitor_(*kept_), over_(std::move(over)) {}

  std::shared_ptr<StateVisitor> kept_;
  StateVisitor& visitor_;
  std::function<void(bool)> over_;
  std::size_t missing_ = 0;
};

}  // namespace co2
