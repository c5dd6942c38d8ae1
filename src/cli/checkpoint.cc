#include <co2/error.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/human.h"
#include "checkpoint/folder.h"
#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"
#include "cli/program.h"
#include "processes/screen.h"

namespace co2::cli {

namespace {

using nlohmann::ordered_json;

constexpr const char* kFooter = R"(
A run's checkpoints are in RUN/checkpoints; docs/checkpoints.md has the format.

Examples:
  co2 checkpoint list runs/mine                    what there is
  co2 checkpoint verify runs/mine                  reads all of it, and says what is damaged
  co2 checkpoint show runs/mine                    the newest one: its files and tensors
  co2 checkpoint show runs/mine --step 800 --json)";

struct CheckpointFlags {
  std::string run;
  std::int64_t step = -1;
  bool json = false;
};

checkpoint::Checkpoints of_run(const std::string& run) {
  if (!std::filesystem::is_directory(run)) {
    throw DataError(fmt::format("'{}' is no folder: name that of a run (co2 train says it in its first line)", run));
  }
  return checkpoint::Checkpoints(run);
}

checkpoint::Listed newest_readable(const std::string& run) {
  for (checkpoint::Listed& each : of_run(run).list()) {
    if (each.manifest) return std::move(each);
  }
  throw DataError(fmt::format("there is no checkpoint in {} that can be read", run));
}

std::int64_t bytes_of(const checkpoint::Manifest& manifest) {
  std::int64_t bytes = 0;
  for (const checkpoint::FileEntry& file : manifest.files) bytes += file.bytes;
  return bytes;
}

ordered_json to_json(const checkpoint::Manifest& manifest) {
  ordered_json about = ordered_json::object();
  for (const auto& [name, fact] : manifest.about) {
    std::visit([&about, &name = name](const auto& value) { about[name] = value; }, fact);
  }
  return {{"step", manifest.step}, {"workers", manifest.workers}, {"island_size", manifest.island_size},
          {"zero", manifest.zero}, {"bytes", bytes_of(manifest)}, {"co2", manifest.co2},
          {"about", about}};
}

/// One line for each; `problem_of` says what is wrong with one that has a manifest. If nothing is: `all_good` last.
template <typename ProblemOf>
int show_all(const CheckpointFlags& flags, const ProblemOf& problem_of, const std::string& all_good) {
  ordered_json all = ordered_json::array();
  std::string text;
  bool good = true;
  for (const checkpoint::Listed& each : of_run(flags.run).list()) {
    const std::string problem = each.manifest ? problem_of(each) : each.problem;
    good = good && problem.empty();
    ordered_json json = each.manifest ? to_json(*each.manifest) : ordered_json{{"step", each.step}};
    json["path"] = each.path.string();
    json["problem"] = problem.empty() ? ordered_json() : ordered_json(problem);
    all.push_back(json);
    const std::string size = each.manifest ? human_bytes(static_cast<double>(bytes_of(*each.manifest))) : "?";
    const std::string workers = each.manifest ? fmt::format("{} workers", each.manifest->workers) : "?";
    text += fmt::format("step {:>9}  {:>10}  {:>11}  {}\n", each.step, workers, size,
                        problem.empty() ? each.path.string() : fmt::format("NO GOOD: {}", problem));
  }
  if (good) text += all_good;
  if (all.empty()) text = fmt::format("no checkpoints in {}\n", flags.run);
  processes::show(stdout, flags.json ? all.dump(2) + "\n" : text);
  return good ? 0 : DataError("").exit_code();
}

int list(const CheckpointFlags& flags) {
  return show_all(
      flags, [](const checkpoint::Listed&) { return std::string(); }, "");
}

int verify(const CheckpointFlags& flags) {
  if (of_run(flags.run).list().empty()) {
    throw DataError(fmt::format("there are no checkpoints in {} that could be verified", flags.run));
  }
  const auto problem_of = [](const checkpoint::Listed& each) -> std::string {
    try {
      checkpoint::verify(each.path);
    } catch (const DataError& error) {
      return error.what();
    }
    return "";
  };
  return show_all(flags, problem_of, "all of them are good: every file is there, and fits its checksum\n");
}

int show_one(const CheckpointFlags& flags) {
  const checkpoint::Listed chosen = flags.step < 0 ? newest_readable(flags.run) : of_run(flags.run).of_step(flags.step);
  if (!chosen.manifest) throw DataError(chosen.problem);
  ordered_json json = to_json(*chosen.manifest);
  json["path"] = chosen.path.string();
  json["files"] = ordered_json::array();
  std::string text = fmt::format("{}\n", chosen.path.string());
  for (const ordered_json& facts : {json, json["about"]}) {
    for (const auto& [name, value] : facts.items()) {
      if (value.is_structured()) continue;
      text += fmt::format("  {:<12} {}\n", name, value.is_string() ? value.get<std::string>() : value.dump());
    }
  }
  for (const checkpoint::FileEntry& file : chosen.manifest->files) {
    ordered_json entry = {{"name", file.name}, {"bytes", file.bytes}, {"checksum", file.checksum}};
    text += fmt::format("{}  {}\n", file.name, human_bytes(static_cast<double>(file.bytes)));
    if (std::filesystem::exists(chosen.path / file.name)) {
      const checkpoint::SafetensorsFile contents(chosen.path / file.name, file);
      entry["tensors"] = ordered_json::array();
      for (const checkpoint::TensorInfo& tensor : contents.header().tensors) {
        entry["tensors"].push_back({{"name", tensor.name}, {"dtype", tensor.dtype}, {"shape", tensor.shape}});
        text += fmt::format("  {:<4} {:<20} {}\n", tensor.dtype, ordered_json(tensor.shape).dump(), tensor.name);
      }
    } else {
      text += "  (on another machine)\n";
    }
    json["files"].push_back(std::move(entry));
  }
  processes::show(stdout, flags.json ? json.dump(2) + "\n" : text);
  return 0;
}

}  // namespace

void add_checkpoint(Program& program) {
  CLI::App* sub = program.app.add_subcommand("checkpoint", "Look at the checkpoints of a run");
  sub->footer(kFooter);
  ask_for_subcommand(program, *sub, "say what to do: co2 checkpoint list, show or verify");
  auto flags = std::make_shared<CheckpointFlags>();
  const auto add = [&](const char* name, const char* help, int (*run)(const CheckpointFlags&)) {
    CLI::App* command = sub->add_subcommand(name, help);
    command->add_option("run", flags->run, "Folder of the run")->required()->option_text("RUN");
    command->add_flag("--json", flags->json, "Print it as JSON");
    command->final_callback([&program, flags, run] { program.chosen = [flags, run] { return run(*flags); }; });
    return command;
  };
  add("list", "What there is, the newest first", list);
  add("verify", "Read all of them, and compare with their checksums; exit code 4 if one is damaged", verify);
  add("show", "Files and tensors of one", show_one)
      ->add_option("--step", flags->step, "Of this step (default: the newest)")
      ->option_text("N");
}

}  // namespace co2::cli
