#include <co2/error.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>

#include "base/cores.h"
#include "base/files.h"
#include "base/human.h"
#include "cli/program.h"
#include "cli/train_options.h"
#include "island/placed.h"
#include "options/recipe.h"
#include "processes/screen.h"
#include "study/chart.h"
#include "study/findings.h"
#include "study/plan.h"
#include "study/report.h"
#include "study/results.h"
#include "study/runner.h"
#include "study/study_file.h"
#include "study/training.h"
#include "train/task_type.h"

namespace co2::cli {

namespace {

constexpr const char* kFooter = R"(
A study file (TOML) says what is compared: options of co2 train for all runs, rows with options of their own, seeds, what
is to be chosen by trials, and a link to tell times for. docs/studies.md has every key. The source has
examples in studies/, an installation in share/co2/studies.

Examples:
  co2 study plan studies/quick.toml                    how many runs, and how long they will take here
  co2 study run studies/quick.toml                     run what is missing; stop and go on whenever you like
  co2 study report studies/quick.toml --svg quick.svg  tables, and a picture)";

struct StudyFlags {
  std::string file;
  std::string out;
  std::optional<int> jobs;
  bool json = false;
  bool markdown = false;
  std::string svg;
};

/// The file, and all that it asks for.
struct Study {
  study::StudyFile file;
  study::Plan plan;
  std::filesystem::path folder;
};

nlohmann::ordered_json complete(const study::Settings& settings) {
  std::vector<Setting> all;
  for (const auto& [name, value] : settings) all.push_back({name, value.value, name, value.place});
  train::TrainConfig config;
  apply_all(config, all);
  check(config);
  config = train::settled(config);
  if (config.workers > 0) placed(resolve(config.sync), config.workers);  // throws if the islands can't be
  return to_json(config);
}

Study open_study(const StudyFlags& flags) {
  if (flags.file.empty()) throw OptionError("a study file is missing, as in co2 study run studies/quick.toml");
  require_utf8("--out", flags.out);
  Study study{.file = study::read_study_file(flags.file), .plan = {}, .folder = flags.out};
  study.plan = study::plan_study(study.file, complete);
  if (flags.out.empty()) study.folder = std::filesystem::path("runs") / ("study-" + study.file.name);
  return study;
}

void show_report(const Study& study, const study::Results& results, const StudyFlags& flags) {
  const study::Findings findings = study::findings_of(study.file, study.plan, results);
  if (!flags.svg.empty()) {
    const auto task = study.plan.rows[0].config().at("task").get<std::string>();
    write_atomically(flags.svg, study::chart(study.file, findings, train::task_type(task).words));
  }
  processes::show(stdout, flags.json       ? study::report_json(study.file, findings).dump(2) + "\n"
                          : flags.markdown ? study::report_markdown(study.file, findings)
                                           : study::report_text(study.file, findings));
}

int jobs_of(const StudyFlags& flags) {
  if (!flags.jobs) return static_cast<int>(usable_cores().size());
  if (*flags.jobs < 1 || *flags.jobs > 1024) {
    throw OptionError(fmt::format("--jobs {} is not allowed: it must be 1 to 1024", *flags.jobs));
  }
  return *flags.jobs;
}

int run(const StudyFlags& flags) {
  const int jobs = jobs_of(flags);
  const Study study = open_study(flags);
  study::Results results = study::Results::open(study.folder, complete);
  const int code = study::run_study(study.file, study.plan, results, {.folder = study.folder, .jobs = jobs});
  if (code < 128) show_report(study, results, flags);  // who stops it wants no table
  return code;
}

int report(const StudyFlags& flags) {
  if (flags.json && flags.markdown) throw OptionError("--json and --markdown contradict each other: leave out one");
  const Study study = open_study(flags);
  const study::Results results = study::Results::read(study.folder, complete);
  for (const std::string& warning : results.warnings()) processes::show(stderr, "co2: " + warning + "\n");
  show_report(study, results, flags);
  return 0;
}

int plan(const StudyFlags& flags) {
  const int jobs = jobs_of(flags);
  const Study study = open_study(flags);
  const study::Plan& all = study.plan;
  const study::Speed speed = study::measure_speed(all.rows[0].trials[0].runs[0]);
  const double seconds =
      (all.samples() * speed.sample_seconds + static_cast<double>(all.count()) * speed.run_seconds) / jobs;
  if (flags.json) {
    nlohmann::ordered_json json = {
        {"rows", nlohmann::ordered_json::array()}, {"runs", all.count()}, {"jobs", jobs}, {"seconds", seconds}};
    for (const study::Row& row : all.rows) json["rows"].push_back(row.label);
    processes::show(stdout, json.dump(2) + "\n");
    return 0;
  }
  std::string text;
  for (const study::Row& row : all.rows) {
    const study::Trial& first = row.trials[0];
    text += fmt::format("  {:<44} {}{} seeds\n", row.label,
                        first.tries.empty() ? "" : fmt::format("{} trials, ", row.trials.size()), first.runs.size());
  }
  processes::show(stdout, fmt::format("{} rows:\n{}{} runs; about {} here, {} side by side\n", all.rows.size(), text,
                                      all.count(), clock_time(seconds), jobs));
  return 0;
}

}  // namespace

void add_study(Program& program) {
  CLI::App* family = program.app.add_subcommand("study", "Compare how strategies learn: many runs, seeds and a test");
  family->footer(kFooter);
  ask_for_subcommand(program, *family, "say what to do: co2 study plan, co2 study run or co2 study report");
  const auto add = [&](const char* name, const char* help, int (*action)(const StudyFlags&)) {
    CLI::App* sub = family->add_subcommand(name, help);
    sub->allow_extras();
    auto flags = std::make_shared<StudyFlags>();
    sub->add_option("file", flags->file, "The study file, in TOML")->option_text("FILE");
    sub->add_flag("--json", flags->json, "Print it as one JSON object");
    sub->final_callback([&program, flags, action] {
      program.chosen = [&program, flags, action] {
        if (!program.after_dashes.empty()) throw OptionError("'--' has no meaning for co2 study");
        return action(*flags);
      };
    });
    return std::pair{sub, flags};
  };
  const auto add_out = [](CLI::App* sub, StudyFlags& flags) {
    sub->add_option("--out", flags.out, "Folder of the results (default: runs/study-<name>)")->option_text("DIR");
  };
  const auto add_jobs = [](CLI::App* sub, StudyFlags& flags) {
    sub->add_option("--jobs", flags.jobs, "Runs side by side (default: one per usable core)")->option_text("N");
  };
  const auto [planner, plan_flags] = add("plan", "List the rows, and say how long they will take here", plan);
  add_jobs(planner, *plan_flags);
  const auto [runner, run_flags] = add("run", "Run what is missing, then show the report", run);
  add_out(runner, *run_flags);
  add_jobs(runner, *run_flags);
  const auto [reporter, report_flags] = add("report", "Show what is there: tables, a test, a picture", report);
  add_out(reporter, *report_flags);
  reporter->add_flag("--markdown", report_flags->markdown, "Print it as Markdown");
  reporter->add_option("--svg", report_flags->svg, "Draw losses against samples and time into this file")
      ->option_text("FILE");
}

}  // namespace co2::cli
