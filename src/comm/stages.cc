#include "comm/stages.h"

#include <c10/util/Exception.h>
#include <co2/error.h>

#include <pthread.h>
#include <time.h>
#include <algorithm>

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <utility>

namespace co2 {

/// Exchanges in the order in which they were started.
struct Stages::Line {
  explicit Line(std::size_t count) : stages(count) {}

  const std::size_t stages;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::shared_ptr<Exchange>> under_way;
  bool stopping = false;

  /// One whose next stage may run: its collective is over, and those before it have run that stage. Null if there is
  /// none.
  std::shared_ptr<Exchange> find_ready() const;
};

class Stages::Exchange final : public Work, public std::enable_shared_from_this<Exchange> {
 public:
  Exchange(std::shared_ptr<Line> line, std::vector<Stage> stages, std::function<void()> last)
      : line_(std::move(line)), stages_(std::move(stages)), last_(std::move(last)) {}

  bool completed() const override {
    const std::lock_guard lock(line_->mutex);
    return over_;
  }

  /// Waits for the collectives themselves, because their groups know how long one may take: for those of earlier
  /// exchanges too, which may hold this one up.
  void wait(std::chrono::milliseconds timeout) override {
    const Clock::time_point deadline = Clock::now() + timeout;
    std::unique_lock lock(line_->mutex);
    while (!over_) {
      auto left = std::chrono::milliseconds::zero();
      if (timeout.count() > 0) {
        left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
        if (left.count() <= 0) throw CommError({"exchange in stages", -1, -1, ""}, "not over in time");
      }
      const std::shared_ptr<Exchange> first = line_->under_way.front();
      const WorkPtr work = first->work_;
      if (work && !work->completed()) {
        lock.unlock();
        wait_for(*work, left);
        lock.lock();
      } else {
        line_->changed.wait_for(lock, std::chrono::milliseconds(100));  // somebody computes
      }
    }
    if (failure_) std::rethrow_exception(failure_);
  }

  void then(std::function<void()> callback) override {
    {
      const std::lock_guard lock(line_->mutex);
      if (!over_) {
        callbacks_.push_back(std::move(callback));
        return;
      }
    }
    callback();
  }

  Clock::time_point started() const override { return started_; }
  Clock::time_point finished() const override {
    const std::lock_guard lock(line_->mutex);
    return finished_;
  }

  // The rest is for Stages, with the line's mutex held unless it says otherwise.

  /// The stage that is to run next; as many as there are: only what comes last.
  std::size_t next() const { return next_; }
  bool ready() const { return !running_ && work_ && work_->completed(); }

  /// Runs the next stage. Called without the mutex.
  void run_next() {
    WorkPtr work;
    std::exception_ptr failure;
    try {
      if (work_) work_->wait();  // it is over: throws if it has failed
      if (next_ < stages_.size()) {
        work = stages_[next_]();
        TORCH_CHECK(work, "a stage has started no collective");
      } else if (last_) {
        last_();
      }
    } catch (...) {
      failure = std::current_exception();
    }
    const bool over = failure || next_ == stages_.size();
    std::vector<std::function<void()>> callbacks;
    {
      const std::lock_guard lock(line_->mutex);
      ++next_;
      work_ = work;
      running_ = false;
      if (over) {
        over_ = true;
        failure_ = failure;
        finished_ = Clock::now();
        callbacks.swap(callbacks_);
        std::erase_if(line_->under_way, [this](const auto& other) { return other.get() == this; });
        stages_.clear();  // with the memory that they need
        last_ = nullptr;
      }
      line_->changed.notify_all();
    }
    for (const auto& callback : callbacks) callback();
    if (work) {
      work->then([line = line_] {
        const std::lock_guard lock(line->mutex);
        line->changed.notify_all();
      });
    }
  }

  bool running_ = false;

 private:
  /// A failure is told by the exchange whose it is.
  static void wait_for(Work& work, std::chrono::milliseconds timeout) {
    try {
      work.wait(timeout);
    } catch (const Error&) {
      if (!work.completed()) throw;  // it would not end either if we waited again
    }
  }

  const std::shared_ptr<Line> line_;
  std::vector<Stage> stages_;
  std::function<void()> last_;
  const Clock::time_point started_ = Clock::now();
  std::size_t next_ = 0;
  WorkPtr work_;  // of the stage before next_
  bool over_ = false;
  std::exception_ptr failure_;
  Clock::time_point finished_;
  std::vector<std::function<void()>> callbacks_;
};

std::shared_ptr<Stages::Exchange> Stages::Line::find_ready() const {
  std::size_t reached = stages;  // by all before
  for (const std::shared_ptr<Exchange>& exchange : under_way) {
    const bool in_turn = exchange->next() == stages || exchange->next() < reached;
    if (in_turn && exchange->ready()) return exchange;
    reached = std::min(reached, exchange->next());
  }
  return nullptr;
}

Stages::Stages(std::size_t count) : line_(std::make_shared<Line>(count)) {
  TORCH_CHECK(count >= 1, "an exchange has at least one stage");
  thread_ = std::thread([line = line_] {
    std::unique_lock lock(line->mutex);
    while (true) {
      if (const std::shared_ptr<Exchange> exchange = line->find_ready()) {
        exchange->running_ = true;
        lock.unlock();
        exchange->run_next();
        lock.lock();
        continue;
      }
      if (line->stopping) return;
      line->changed.wait(lock);
    }
  });
}

Stages::~Stages() {
  std::unique_lock lock(line_->mutex);
  while (!line_->under_way.empty()) {
    const std::shared_ptr<Exchange> last = line_->under_way.back();
    lock.unlock();
    try {
      last->wait(std::chrono::milliseconds::zero());
    } catch (...) {  // whoever waits here has nobody left to tell
      if (!last->completed()) {
        lock.lock();
        break;
      }
    }
    lock.lock();
  }
  line_->stopping = true;
  line_->changed.notify_all();
  lock.unlock();
  thread_.join();
  line_->under_way.clear();  // what never came to an end
}

double Stages::cpu_seconds() const {
  clockid_t clock;
  timespec time{};
  if (pthread_getcpuclockid(thread_.native_handle(), &clock) != 0 || clock_gettime(clock, &time) != 0) return 0;
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

WorkPtr Stages::start(std::vector<Stage> stages, std::function<void()> last) {
  TORCH_CHECK(stages.size() == line_->stages, "an exchange of ", stages.size(), " stages where there are ",
              line_->stages);
  auto exchange = std::make_shared<Exchange>(line_, std::move(stages), std::move(last));
  {
    const std::lock_guard lock(line_->mutex);
    exchange->running_ = true;
    line_->under_way.push_back(exchange);
  }
  exchange->run_next();
  return exchange;
}

}  // namespace co2
