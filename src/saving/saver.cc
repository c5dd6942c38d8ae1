#include <co2/checkpoint.h>
#include <co2/error.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <sstream>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "checkpoint/folder.h"
#include "checkpoint/names.h"
#include "checkpoint/part.h"
#include "cluster/group.h"
#include "saving/file_systems.h"
#include "saving/folder_claim.h"
#include "saving/part_visitors.h"
#include "saving/whole_state.h"
#include "trace/bytes.h"

namespace co2 {

namespace {

constexpr auto kMine = "mine/";  // names of what a user adds

std::int64_t bytes_of(const checkpoint::Part& part) {
  std::int64_t bytes = 0;
  for (const auto& [name, tensor] : part.tensors) bytes += co2::bytes_of(tensor);
  return bytes;
}

/// What a worker tells the others about its file: "ok <bytes> <checksum>", or what went wrong.
std::string text_of(const checkpoint::FileEntry& entry) { return fmt::format("ok {} {}", entry.bytes, entry.checksum); }
std::optional<checkpoint::FileEntry> entry_from(const std::string& text, int worker) {
  constexpr std::string_view kOk = "ok ";
  if (!text.starts_with(kOk)) return std::nullopt;
  checkpoint::FileEntry entry;
  entry.name = checkpoint::worker_file(worker);
  const char* const end = text.data() + text.size();
  const auto [after, problem] = std::from_chars(text.data() + kOk.size(), end, entry.bytes);
  if (problem != std::errc() || after == end) return std::nullopt;
  entry.checksum.assign(after + 1, end);
  return entry;
}

}  // namespace

class Saver::Impl : public std::enable_shared_from_this<Impl> {
 public:
  /// What is saved: a Synchronizer, or a Core with what shows its optimizer's state.
  struct Run {
    std::function<void(std::shared_ptr<StateVisitor>, std::function<void(bool)>)> snapshot;
    std::function<void(StateVisitor&)> visit;
    std::function<void()> settle;
    std::int64_t steps = 0;
    int island_size = 1;
    int zero = 0;
    // For checkpoints of another layout; a Core's inner optimizer is not known well enough for that.
    std::function<void(StateVisitor&, const std::function<void()>&)> adopt = {};
    const TrainedModel* outline = nullptr;
    const std::vector<TrainedTensor>* trained = nullptr;
    Options asked = {};
  };

  Impl(const Cluster& cluster, const std::filesystem::path& run, SaverOptions options)
      : claim_(run, cluster.rank()),
        rank_(cluster.rank()),
        size_(cluster.size()),
        options_(std::move(options)),
        communicator_(cluster.communicator("checkpoints")),
        group_(communicator_),
        background_(cluster.communicator("checkpoints being written")),
        store_(run) {
    if (options_.keep < 1)
      throw OptionError(fmt::format("keep = {} is not allowed: it must be 1 or more", options_.keep));
    token_ = group_.gather(rank_ == 0 ? checkpoint::new_token() : "").front();
    here_ = workers_that_share(store_.folder(), token_, rank_, group_);
    group_.all_or_none("clear away what an earlier run left half written", [&] {
      if (publishes()) store_.remove_partials();
    });
    writer_ = std::thread([this] { write_what_comes(); });
  }

  ~Impl() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    changed_.notify_all();
    writer_.join();
  }

  void save(const Run& run, const Mine& mine) {
    const Clock::time_point begin = Clock::now();
    wait(run.settle);
    settle_ = run.settle;  // the run must be there when somebody waits
    const auto job = std::make_shared<Job>();
    const auto visitor = std::make_shared<PartWriter>(job->part, std::move(memory_));
    Prefixed prefixed(*visitor, kMine);
    if (mine) mine(prefixed);
    job->manifest = {.step = run.steps, .workers = size_, .island_size = run.island_size, .zero = run.zero};
    for (const auto& [name, value] : options_.about) job->manifest.about.emplace(name, value);
    // What is on the wire may arrive when there is no Saver any more.
    run.snapshot(visitor, [self = weak_from_this(), job](bool complete) {
      job->shown = true;
      job->complete = complete;
      const std::shared_ptr<Impl> saver = self.lock();
      if (saver && job->copied) saver->hand_over(job);
    });
    {
      const std::lock_guard lock(mutex_);
      state_ = State::kArriving;
    }
    job->stalled_seconds = seconds_since(begin);
    job->copied = true;
    if (job->shown) hand_over(job);
  }

  /// `settle`: has what is on the wire arrive, and be shown.
  void wait(const std::function<void()>& settle) {
    std::unique_lock lock(mutex_);
    if (state_ == State::kArriving && settle) {
      lock.unlock();
      settle();
      lock.lock();
    }
    changed_.wait(lock, [&] { return state_ == State::kIdle; });
  }
  void wait() { wait(settle_); }

  std::vector<SaveReport> reports() {
    const std::lock_guard lock(mutex_);
    return std::exchange(reports_, {});
  }

  std::optional<std::int64_t> restore(const Run& run, const Mine& mine) {
    wait(settle_);
    passed_over_.clear();
    reshapes_ = false;
    std::vector<checkpoint::Listed> listed;
    group_.all_or_none("read the folder of checkpoints", [&] { listed = store_.list(); });
    const std::vector<std::string> counts = group_.gather(std::to_string(listed.size()));
    if (std::all_of(counts.begin(), counts.end(), [](const std::string& count) { return count == "0"; })) {
      return std::nullopt;
    }
    for (const auto& [step, kind] : offered_by_rank_0(listed, run)) {
      const auto mine_of_step =
          std::find_if(listed.begin(), listed.end(), [&](const auto& l) { return l.step == step; });
      const checkpoint::Listed candidate =
          mine_of_step != listed.end()
              ? *mine_of_step
              : checkpoint::Listed{store_.path_of(step), step, std::nullopt, "this worker has none of this step"};
      reshapes_ = kind == Kind::kAnother;
      if (kind == Kind::kAnother ? restore_whole(run, mine, candidate) : restore_own(run, mine, candidate)) return step;
    }
    refuse_all();
  }

  bool reshapes() const { return reshapes_; }
  const std::vector<PassedOver>& passed_over() const { return passed_over_; }

 private:
  enum class State { kIdle, kArriving, kWriting };
  struct Job {
    checkpoint::Part part;
    checkpoint::Manifest manifest;
    double stalled_seconds = 0;
    bool copied = false;    // all that was here
    bool shown = false;     // and all that was on the wire, or dropped
    bool complete = false;  // not dropped
  };

  void hand_over(const std::shared_ptr<Job>& job) {
    const std::lock_guard lock(mutex_);
    job_ = job;
    state_ = State::kWriting;
    changed_.notify_all();
  }

  bool publishes() const { return here_.front() == rank_; }

  void write_what_comes() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return ended_ || job_; });
      if (!job_) return;
      const std::shared_ptr<Job> job = std::exchange(job_, nullptr);
      lock.unlock();
      const Clock::time_point begin = Clock::now();
      SaveReport report = write(*job);
      lock.lock();
      report.stalled_seconds = job->stalled_seconds;
      report.written_seconds = seconds_since(begin);
      reports_.push_back(std::move(report));
      memory_ = std::move(job->part);
      state_ = State::kIdle;
      changed_.notify_all();
    }
  }

  /// Never throws: a checkpoint that could not be written is no reason to end a run.
  SaveReport write(Job& job) noexcept {
    SaveReport report;
    report.step = job.manifest.step;
    try {
      const std::string mine = attempt([&] {
        if (!job.complete) throw DataError("the run ended before everything had arrived");
        checkpoint::require_space(store_.folder(), bytes_of(job.part));
        const auto folder = store_.begin(job.manifest.step, token_);
        const checkpoint::FileEntry entry = checkpoint::write_part(folder, rank_, job.part);
        report.bytes = entry.bytes;
        return text_of(entry);
      });
      const std::vector<std::string> files = background_.gather(mine);
      for (int worker = 0; worker < size_ && report.problem.empty(); ++worker) {
        const std::string& text = files[static_cast<std::size_t>(worker)];
        if (const auto entry = entry_from(text, worker)) {
          job.manifest.files.push_back(*entry);
        } else {
          report.problem = problem_of(worker, text);
        }
      }
      const bool all = report.problem.empty();
      const std::string outcome = attempt([&]() -> std::string {
        if (!publishes()) return "ok";
        if (!all) {
          store_.discard(job.manifest.step, token_);
          return "ok";
        }
        store_.publish(token_, job.manifest, here_);
        store_.prune(options_.keep, here_);
        return "ok";
      });
      const std::vector<std::string> outcomes = background_.gather(outcome);
      for (int worker = 0; worker < size_ && report.problem.empty(); ++worker) {
        const std::string& text = outcomes[static_cast<std::size_t>(worker)];
        if (text != "ok") report.problem = problem_of(worker, text);
      }
      if (report.problem.empty()) report.path = store_.path_of(job.manifest.step);
    } catch (const std::exception& error) {
      report.problem = error.what();
    }
    return report;
  }

  template <typename Body>
  static std::string attempt(const Body& body) {
    try {
      return body();
    } catch (const std::exception& error) {
      return error.what();
    }
  }

  std::string problem_of(int worker, const std::string& text) const {
    return worker == rank_ ? text : fmt::format("worker {}: {}", worker, text);
  }

  enum class Kind { kSame, kAnother };  // layout

  /// The newest first. What rank 0 does not have is of no use to anybody; what only it has may be, of another layout.
  std::vector<std::pair<std::int64_t, Kind>> offered_by_rank_0(const std::vector<checkpoint::Listed>& listed,
                                                               const Run& run) {
    std::string mine;
    for (const checkpoint::Listed& each : listed) {
      const bool same =
          !each.manifest || (each.manifest->workers == size_ && each.manifest->island_size == run.island_size &&
                             each.manifest->zero == run.zero);
      mine += fmt::format("{} {}\n", each.step, same ? "same" : "another");
    }
    std::istringstream text(group_.gather(rank_ == 0 ? mine : "").front());
    std::vector<std::pair<std::int64_t, Kind>> offered;
    std::int64_t step = 0;
    for (std::string kind; text >> step >> kind;)
      offered.emplace_back(step, kind == "same" ? Kind::kSame : Kind::kAnother);
    return offered;
  }

  /// Whether no worker has a problem with it; if one has, it is passed over.
  bool all_can(const checkpoint::Listed& candidate, const std::string& problem) {
    const std::vector<std::string> problems = group_.gather(problem);
    const auto first = std::find_if(problems.begin(), problems.end(), [](const auto& text) { return !text.empty(); });
    if (first == problems.end()) return true;
    passed_over_.emplace_back(candidate.path, problem_of(static_cast<int>(first - problems.begin()), *first));
    return false;
  }

  /// Each worker looks at its own file only.
  bool restore_own(const Run& run, const Mine& mine, const checkpoint::Listed& candidate) {
    checkpoint::Part part;
    const std::string problem = attempt([&] {
      part = own_part(candidate);
      return std::string();
    });
    if (!all_can(candidate, problem)) return false;
    PartReader reader(part, (candidate.path / checkpoint::worker_file(rank_)).string());
    group_.all_or_none("put the checkpoint in place", [&] {
      run.visit(reader);
      Prefixed prefixed(reader, kMine);
      if (mine) mine(prefixed);
      reader.require_all_read();
    });
    return true;
  }

  /// Rank 0 reads all files, and the others none.
  bool restore_whole(const Run& run, const Mine& mine, const checkpoint::Listed& candidate) {
    std::vector<checkpoint::Part> parts;
    const std::string problem = attempt([&] {
      if (!run.adopt) {
        throw DataError(
            "it is of another number of workers, island_size or zero, and a Core with an optimizer of its own goes on "
            "with the same ones only");
      }
      if (run.steps > 0)
        throw DataError("it is of another layout: only a run that has taken no step can go on from it");
      if (rank_ == 0) parts = all_parts(candidate);
      return std::string();
    });
    if (!all_can(candidate, problem)) return false;
    WholeState state;
    group_.all_or_none("put a checkpoint of another layout together", [&] {
      if (rank_ == 0) state = finished(*run.outline, run.asked, *candidate.manifest, parts);
    });
    parts.clear();
    WholeReader reader(group_, communicator_, *run.outline, *run.trained, std::move(state));
    constexpr auto kAsking = "ask for its share of the checkpoint";
    bool asked = false;
    try {
      run.adopt(reader, [&] {
        asked = true;
        group_.all_or_none(kAsking, [&] {
          Prefixed prefixed(reader, kMine);
          if (mine) mine(prefixed);
        });
        reader.fill();
      });
    } catch (...) {
      if (!asked) group_.all_or_none(kAsking, [] { throw; });  // the others wait to be told
      throw;
    }
    return true;
  }

  static std::vector<checkpoint::Part> all_parts(const checkpoint::Listed& candidate) {
    if (!candidate.manifest) throw DataError(candidate.problem);
    std::vector<checkpoint::Part> parts;
    for (int worker = 0; worker < candidate.manifest->workers; ++worker) {
      parts.push_back(checkpoint::read_part(candidate.path / checkpoint::worker_file(worker),
                                            checkpoint::file_of(*candidate.manifest, worker, candidate.path)));
    }
    return parts;
  }

  /// Throws DataError unless it is of so many workers, and this one's file to the last bit what was written.
  checkpoint::Part own_part(const checkpoint::Listed& candidate) const {
    if (!candidate.manifest) throw DataError(candidate.problem);
    if (candidate.manifest->workers != size_) {
      throw DataError(fmt::format("it is of {} workers, and this run has {}", candidate.manifest->workers, size_));
    }
    return checkpoint::read_part(candidate.path / checkpoint::worker_file(rank_),
                                 checkpoint::file_of(*candidate.manifest, rank_, candidate.path));
  }

  [[noreturn]] void refuse_all() const {
    std::string reasons;
    for (const auto& [path, problem] : passed_over_) reasons += fmt::format("\n  {}: {}", path.string(), problem);
    if (reasons.empty()) reasons = "\n  (rank 0 has none)";
    throw DataError(fmt::format("no checkpoint in {} is good on all workers:{}", store_.folder().string(), reasons));
  }

  const FolderClaim claim_;
  const int rank_;
  const int size_;
  const SaverOptions options_;
  std::shared_ptr<Communicator> communicator_;
  Group group_;
  Group background_;  // the writing thread's
  checkpoint::Checkpoints store_;
  std::string token_;
  std::vector<int> here_;
  std::function<void()> settle_;
  std::vector<PassedOver> passed_over_;
  bool reshapes_ = false;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = false;
  State state_ = State::kIdle;
  std::shared_ptr<Job> job_;  // that is to be written
  std::vector<SaveReport> reports_;
  checkpoint::Part memory_;  // of the last one: free to be used again when idle
  std::thread writer_;       // the last member: it uses the others
};

Saver::Saver(const Cluster& cluster, const std::filesystem::path& run, const SaverOptions& options)
    : impl_(std::make_shared<Impl>(cluster, run, options)) {}
Saver::~Saver() = default;

namespace {

/// Of a Synchronizer, or of a Core, which takes what shows its optimizer's state.
template <typename Run, typename Target, typename... Inner>
Run as_run(Target& target, const Inner&... inner) {
  return {.snapshot = [&](auto visitor, auto over) { target.snapshot(std::move(visitor), std::move(over), inner...); },
          .visit = [&](StateVisitor& visitor) { target.visit(visitor, inner...); },
          .settle = [&target] { target.settle(); },
          .steps = target.steps(),
          .island_size = target.options().island_size,
          .zero = target.options().zero};
}

}  // namespace

void Saver::save(Synchronizer& sync, const Mine& mine) { impl_->save(as_run<Impl::Run>(sync), mine); }
void Saver::save(Core& core, const Mine& inner, const Mine& mine) { impl_->save(as_run<Impl::Run>(core, inner), mine); }
std::optional<std::int64_t> Saver::restore(Synchronizer& sync, const Mine& mine) {
  auto run = as_run<Impl::Run>(sync);
  run.adopt = [&](StateVisitor& visitor, const std::function<void()>& fill) { sync.adopt(visitor, fill); };
  run.outline = &sync.outline();
  run.trained = &sync.trained();
  run.asked = sync.asked();
  return impl_->restore(run, mine);
}
std::optional<std::int64_t> Saver::restore(Core& core, const Mine& inner, const Mine& mine) {
  return impl_->restore(as_run<Impl::Run>(core, inner), mine);
}
bool Saver::reshapes() const { return impl_->reshapes(); }
const std::vector<PassedOver>& Saver::passed_over() const { return impl_->passed_over(); }
void Saver::wait() { impl_->wait(); }
std::vector<SaveReport> Saver::reports() { return impl_->reports(); }

}  // namespace co2
