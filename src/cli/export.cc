#include <co2/error.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "checkpoint/folder.h"
#include "cli/config_file.h"
#include "cli/program.h"
#include "cli/train_options.h"
#include "processes/screen.h"
#include "train/checkpoint_weights.h"
#include "train/folders.h"
#include "train/task_type.h"

namespace co2::cli {

namespace {

constexpr const char* kFooter = R"(
The weights are those that all workers shared at that step. co2 train itself writes the final model of a run into
RUN/model, in the same form.

Examples:
  co2 export runs/mine --to hf                          the newest checkpoint, into runs/mine/export-800
  co2 export runs/mine --to hf --step 400 --out model
  co2 train --init-from model                           begins with these weights)";

struct ExportFlags {
  std::string run;
  std::string to = "hf";
  std::string out;
  std::int64_t step = -1;
};

checkpoint::Listed chosen(const ExportFlags& flags) {
  checkpoint::Checkpoints checkpoints(flags.run);
  if (flags.step >= 0) {
    const std::filesystem::path path = checkpoints.of_step(flags.step).path;
    return {path, flags.step, checkpoint::verify(path)};
  }
  const checkpoint::NewestGood newest = checkpoints.newest_good();
  for (const auto& [path, problem] : newest.passed_over) {
    processes::show(stderr, fmt::format("co2: passed over {}: {}\n", path.string(), problem));
  }
  if (!newest.path) throw DataError(fmt::format("there is no good checkpoint in {}", flags.run));
  return {*newest.path, newest.manifest.step, newest.manifest};
}

int run(const ExportFlags& flags) {
  if (flags.to != "hf") throw OptionError(fmt::format("--to '{}' is not known. Allowed: hf", flags.to));
  train::TrainConfig config;
  apply_all(config, read_run_config(flags.run));
  config = train::settled(config);
  const train::TaskType& type = train::task_type(config.task);
  if (type.export_weights == nullptr) throw OptionError(fmt::format("the task {} has no export", type.name));
  const checkpoint::Listed checkpoint = chosen(flags);
  const train::CheckpointWeights weights(checkpoint.path, *checkpoint.manifest);
  const std::filesystem::path folder =
      flags.out.empty() ? std::filesystem::path(flags.run) / fmt::format("export-{}", checkpoint.step)
                        : std::filesystem::path(flags.out);
  train::ensure_writable(folder);
  type.export_weights(config, weights, folder);
  processes::show(stdout, fmt::format("step {} of {}: written to {}\n", checkpoint.step, flags.run, folder.string()));
  return 0;
}

}  // namespace

void add_export(Program& program) {
  CLI::App* sub = program.app.add_subcommand("export", "Write a checkpoint's weights for other programs");
  sub->footer(kFooter);
  auto flags = std::make_shared<ExportFlags>();
  sub->add_option("run", flags->run, "Folder of the run")->required()->option_text("RUN");
  sub->add_option("--to", flags->to,
                  "Form: hf (default), safetensors with the names of transformers' GPT-2 or torchvision's ResNets")
      ->option_text("FORM");
  sub->add_option("--step", flags->step, "Of this step (default: the newest good checkpoint)")->option_text("N");
  sub->add_option("--out", flags->out, "Folder for it (default: RUN/export-<step>)")->option_text("DIR");
  sub->final_callback([&program, flags] { program.chosen = [flags] { return run(*flags); }; });
}

}  // namespace co2::cli
