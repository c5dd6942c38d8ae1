#include "study/study_file.h"

#include <co2/error.h>
#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cctype>

#include "base/files.h"
#include "study/section.h"

namespace co2::study {

namespace {

std::string plain_name(Section& section, const std::string& where) {
  const auto name = section.text("name");
  if (!name) throw OptionError(fmt::format("{} has no name{}: write name = \"...\"", where, section.place()));
  const bool plain = !name->empty() && std::all_of(name->begin(), name->end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.' || c == '+';
  });
  if (!plain || name->starts_with('.')) section.refuse("name", "must be made of letters, digits and - _ . +");
  return *name;
}

Tuning read_tuning(Section section) {
  Tuning tuning;
  tuning.place = section.place();
  if (const auto budget = section.whole("budget")) {
    if (*budget < 1 || *budget > 1000) section.refuse("budget", "must be 1 to 1000 trials");
    tuning.budget = static_cast<int>(*budget);
  }
  tuning.seeds = section.seeds("seeds");
  if (tuning.seeds.empty()) section.refuse("seeds", "is missing: trials have seeds of their own, as in seeds = [101]");
  tuning.choices = section.choices();
  tuning.settings = section.settings();
  return tuning;
}

Link read_link(Section section) {
  Link link;
  const auto rate = section.text("rate");
  if (!rate) section.refuse("rate", "is missing: write rate = \"100mbit\"");
  link.text = *rate;
  link.rate = lab::parse_rate(*rate);
  if (link.rate.unlimited()) section.refuse("rate", "must be a number: on a link without limit time is computation");
  link.step_seconds = section.number("step_seconds");
  if (link.step_seconds && !(*link.step_seconds > 0 && *link.step_seconds < 1e6)) {
    section.refuse("step_seconds", "must be above 0");
  }
  section.refuse_others();
  return link;
}

RowSpec read_row(Section section) {
  RowSpec row;
  row.name = plain_name(section, "a [[row]]");
  row.place = section.place();
  row.seeds = section.seeds("seeds");
  if (auto grid = section.section("grid")) {
    grid->refuse_single_values();
    row.grid = grid->choices();
  }
  if (auto tune = section.section("tune")) {
    for (const char* common : {"budget", "seeds"}) {
      if (tune->has(common)) tune->refuse(common, "is the same for all rows: write it in [tune]");
    }
    tune->refuse_single_values();
    row.choices = tune->choices();
  }
  section.refuse_lists();
  row.settings = section.settings();
  return row;
}

StudyFile read(const toml::table& table, const std::filesystem::path& path) {
  Section top(table, "", path);
  StudyFile file;
  file.path = path;
  file.name = plain_name(top, "the study");
  file.seeds = top.seeds("seeds");
  if (file.seeds.empty()) top.refuse("seeds", "is missing: write seeds = [1, 2, 3]");
  file.reference = top.text("reference").value_or("");
  if (file.reference.empty()) top.refuse("reference", "is missing: name the row that others are compared with");
  file.metric = top.text("metric").value_or(file.metric);
  const std::string better = top.text("better").value_or("lower");
  if (better != "lower" && better != "higher") top.refuse("better", "must be 'lower' or 'higher'");
  file.higher_is_better = better == "higher";
  file.drawn = top.texts("drawn");
  if (auto common = top.section("common")) {
    common->refuse_lists();
    file.common = common->settings();
  }
  if (auto tune = top.section("tune")) file.tune = read_tuning(*tune);
  if (auto link = top.section("link")) file.link = read_link(*link);
  for (Section& row : top.sections("row")) file.rows.push_back(read_row(row));
  top.refuse_others();
  if (file.rows.empty()) throw OptionError(fmt::format("{} has no rows: write [[row]] for each", path.string()));
  return file;
}

}  // namespace

StudyFile read_study_file(const std::filesystem::path& path) {
  const std::string text = read_file(path);
  toml::table table;
  try {
    table = toml::parse(text, path.string());
  } catch (const toml::parse_error& error) {
    throw OptionError(fmt::format("the TOML is not valid ({}, line {}): {}", path.string(), error.source().begin.line,
                                  std::string(error.description())));
  }
  return read(table, path);
}

}  // namespace co2::study
