#include "cli/program.h"

#include <co2/error.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <stdexcept>

#include "base/closest_name.h"
#include "cli/help_formatter.h"
#include "processes/screen.h"
#include "version.h"

namespace co2::cli {

namespace {

constexpr const char* kFooter = R"(
Examples:
  co2 train                                  a small model on this machine's cores
  co2 train --workers 4 --strategy ddp       the same, synchronously, for comparison
  co2 launch -n 2 -- python my_training.py   two processes of any program
  co2 doctor                                 what this cluster can do, and what is wrong with it
  co2 lab                                    strategies side by side on slow links, on this machine alone
  co2 study run studies/quick.toml           how strategies learn, over seeds, with a test
  co2 plan memory --model xl --workers 8     what each worker will hold

Exit codes: 0 success, 2 an option, 3 the cluster, 4 a file, 5 communication, 6 a broken consensus, 130 stopped by Ctrl-C.)";

/// The names that a word could have meant: flags if it starts with a dash, subcommands otherwise.
std::vector<std::string> valid_names(const CLI::App& app, bool flags) {
  std::vector<std::string> names;
  if (flags) {
    for (const CLI::Option* option : app.get_options()) {
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
      for (const std::string& name : option->get_snames()) names.push_back("-" + name);
    }
  } else {
    for (const CLI::App* sub : app.get_subcommands({})) names.push_back(sub->get_name());
  }
  return names;
}

/// "co2 plan memory"
std::string full_name(const CLI::App& app) {
  return app.get_parent() == nullptr ? app.get_name() : full_name(*app.get_parent()) + " " + app.get_name();
}

/// What CLI11 has to say about a command line, in our words.
std::string in_our_words(const CLI::App& app, const CLI::ParseError& error) {
  const std::string text = error.what();
  const CLI::App* chosen = &app;
  while (!chosen->get_subcommands().empty()) chosen = chosen->get_subcommands().front();
  const std::string help = fmt::format("'{} --help' says what is allowed", full_name(*chosen));
  const auto between = [&](std::string_view before, std::string_view after) -> std::optional<std::string> {
    const auto end = text.find(after, before.size());
    if (!text.starts_with(before) || end == std::string::npos) return std::nullopt;
    return text.substr(before.size(), end - before.size());
  };
  if (const auto flag = between("Could not convert: ", " = ")) {
    const std::string value = text.substr(text.find(" = ") + 3);
    return fmt::format("{} '{}' is not allowed: {}", *flag, value, help);
  }
  if (const auto flag = between("", ": 1 required ")) return fmt::format("{} needs a value: {}", *flag, help);
  if (const auto flag = between("", ": At Most 1 ")) return fmt::format("{} is there more than once", *flag);
  if (const auto flag = between("", " was given a disallowed flag override")) {
    const std::string name = flag->starts_with("-") ? *flag : "--" + *flag;
    return fmt::format("{} takes no value, it is said by itself: {}", name, help);
  }
  return fmt::format("{}: {}", text, help);
}

/// Words that nobody could make sense of, in the app itself or in the subcommand that was chosen.
void refuse_extras(const CLI::App& app) {
  for (const CLI::App* sub : app.get_subcommands()) refuse_extras(*sub);
  const std::vector<std::string> extras = app.remaining();
  if (extras.empty()) return;
  const std::string word = extras[0].substr(0, extras[0].find('='));
  const bool flag = word.starts_with("-");
  const bool top = app.get_parent() == nullptr;
  const std::string_view kind = flag ? "option" : top ? "command" : "argument";
  throw OptionError(fmt::format("unknown {} '{}'{} '{} --help' lists what there is", kind, word,
                                did_you_mean(word, valid_names(app, flag)), full_name(app)));
}

int parse_and_run(const std::vector<std::string>& arguments) {
  CLI::App app("co2 trains one model on many machines over a slow network.", "co2");
  app.set_version_flag("--version", std::string("co2 ") + kVersion, "Print the version");
  app.set_help_flag("-h,--help", "Print this help");
  app.footer(kFooter);
  app.formatter(std::make_shared<HelpFormatter>());  // subcommands inherit it
  app.allow_extras();                                // so that we can say what the user may have meant
  app.require_subcommand(0, 1);
  app.option_defaults()->disable_flag_override();  // --pin=2 has no meaning

  const auto dashes = std::find(arguments.begin(), arguments.end(), "--");
  std::vector<std::string> words(arguments.begin(), dashes);
  Program program{.app = app, .words = words, .after_dashes = {}, .chosen = {}};
  if (dashes != arguments.end()) program.after_dashes.assign(dashes + 1, arguments.end());
  add_train(program);
  add_launch(program);
  add_lab(program);
  add_study(program);
  add_doctor(program);
  add_plan(program);
  add_checkpoint(program);
  add_export(program);
  add_data(program);
  for (CLI::App* sub : app.get_subcommands({})) {
    sub->allow_extras();
    sub->group("Commands");
  }

  std::reverse(words.begin(), words.end());  // CLI11 takes them from the back
  try {
    app.parse(std::move(words));
  } catch (const CLI::Success& request) {  // --help, --version
    std::ostringstream text;
    app.exit(request, text, text);
    processes::show(stdout, text.str());
    return 0;
  } catch (const CLI::ParseError& error) {
    throw OptionError(in_our_words(app, error));
  } catch (const std::logic_error& error) {  // CLI11 lets std::stoll's own errors through
    throw OptionError(fmt::format("the command line can't be read: {}. 'co2 --help' says more", error.what()));
  }
  refuse_extras(app);
  if (!program.chosen) {
    throw OptionError(
        fmt::format("a command is missing: {}. 'co2 --help' says more", fmt::join(valid_names(app, false), ", ")));
  }
  return program.chosen();
}

void report(const char* kind, const char* what) {
  processes::show(stderr, fmt::format("co2: error: {}{}\n", kind, what));
}

}  // namespace

int run_program(const std::vector<std::string>& arguments) {
  try {
    const int code = parse_and_run(arguments);
    const bool written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
    if (code == 0 && !written) throw DataError("can't write to standard output");
    return code;
  } catch (const Error& error) {
    report("", error.what());
    return error.exit_code();
  } catch (const std::bad_alloc&) {
    report("", "out of memory");
  } catch (const std::exception& error) {
    report("unexpected: ", error.what());
  }
  return 1;
}

void ask_for_subcommand(Program& program, CLI::App& command, const std::string& message) {
  command.require_subcommand(0, 1);
  command.final_callback([&program, &command, message] {
    if (!command.get_subcommands().empty()) return;
    program.chosen = [message]() -> int { throw OptionError(message); };
  });
}

void require_utf8(const std::string& flag, const std::string& text) {
  try {
    nlohmann::json(text).dump();
  } catch (const nlohmann::json::type_error&) {
    throw OptionError(fmt::format("{} is not UTF-8: give it another name", flag));
  }
}

}  // namespace co2::cli
