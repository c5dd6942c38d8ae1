#pragma once

#include <toml++/toml.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "study/study_file.h"

namespace co2::study {

/// One table of a study file. Keys that mean something to the study are asked for by name; all others are options of
/// co2 train. Whatever is of the wrong kind is an OptionError with file and line.
class Section {
 public:
  /// `title`: as in [title]; empty: the top of the file. Table and path must live on.
  Section(const toml::table& table, std::string title, const std::filesystem::path& path)
      : table_(table), title_(std::move(title)), path_(path) {}

  bool has(const std::string& key) const { return table_.contains(key); }
  std::string place() const;
  [[noreturn]] void refuse(const std::string& key, const std::string& why) const;

  std::optional<std::string> text(const std::string& key);
  std::optional<double> number(const std::string& key);
  std::optional<std::int64_t> whole(const std::string& key);
  std::vector<std::string> texts(const std::string& key);    ///< empty: it is not there
  std::vector<std::uint64_t> seeds(const std::string& key);  ///< the same
  std::optional<Section> section(const std::string& key);    ///< [key]
  std::vector<Section> sections(const std::string& key);     ///< [[key]]

  Settings settings() const;            ///< of what was not asked for, that with one value
  std::vector<Choice> choices() const;  ///< of what was not asked for, that with a list of values

  /// Of what was not asked for: it may have no list, must have one, may not be there at all.
  void refuse_lists() const;
  void refuse_single_values() const;
  void refuse_others() const;

 private:
  std::string full(const std::string& key) const { return title_.empty() ? key : title_ + "." + key; }
  std::string place_at(const toml::source_region& source) const;
  std::string option_name(const std::string& key) const;
  void add(Settings& settings, const std::string& key, Value value) const;
  template <typename T>
  std::optional<T> value(const std::string& key, const char* must);
  nlohmann::json scalar(const std::string& key, const toml::node& node) const;
  std::vector<nlohmann::json> list(const std::string& key) const;  ///< of different values, at least one

  const toml::table& table_;
  std::string title_;
  const std::filesystem::path& path_;
  std::set<std::string> known_;  // asked for
};

}  // namespace co2::study
