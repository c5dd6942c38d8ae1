#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace co2::cli {

/// The look of our help: no CLI11 notation for negated flags, one blank line between groups.
class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter() {
    column_width(32);
    label("SUBCOMMAND", "COMMAND");
  }
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override {
    return replaced(CLI::Formatter::make_option_name(option, is_positional), "{false}", "");
  }
  std::string make_usage(const CLI::App* app, std::string name) const override {
    return "\n" + CLI::Formatter::make_usage(app, name);
  }
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
    return replaced(CLI::Formatter::make_help(app, name, mode), "\n\n\n", "\n\n");
  }

 private:
  static std::string replaced(const std::string& text, const std::string& from, const std::string& to) {
    return CLI::detail::find_and_replace(text, from, to);
  }
};

}  // namespace co2::cli
