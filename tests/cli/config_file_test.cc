#include "cli/config_file.h"

#include <co2/error.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <fstream>

namespace co2::cli {
namespace {

using nlohmann::json;

class ConfigFile : public testing::Test {
 protected:
  ConfigFile() {
    std::string pattern = std::filesystem::temp_directory_path() / "co2-config-XXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  ~ConfigFile() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
    return folder_ / name;
  }
  std::string refusal(const std::string& name, const std::string& text) {
    try {
      train::TrainConfig config;
      for (const Setting& setting : read_config_file(write(name, text))) apply(config, setting);
    } catch (const OptionError& error) {
      return error.what();
    }
    return "accepted";
  }

  std::filesystem::path folder_;
};

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_F(ConfigFile, TomlAndJsonGiveTheSame) {
  const auto from_toml =
      write("a.toml", "# a run\nlocal-steps = 24\nlearning_rate = 2e-3\nmodel = \"tiny\"\npin = false\n");
  const auto from_json =
      write("a.json", R"({"local_steps": 24, "learning-rate": 2e-3, "model": "tiny", "pin": false})");
  const auto without_name = write("a", R"({"local_steps": 24, "learning-rate": 2e-3, "model": "tiny", "pin": false})");
  for (const auto& path : {from_toml, from_json, without_name}) {
    train::TrainConfig config;
    for (const Setting& setting : read_config_file(path)) apply(config, setting);
    EXPECT_EQ(config.sync.local_steps, 24);
    EXPECT_EQ(config.learning_rate, 2e-3);
    EXPECT_EQ(config.model, "tiny");
    EXPECT_FALSE(config.pin);
  }
}

TEST_F(ConfigFile, WholeNumbersServeAsNumbers) {
  train::TrainConfig config;
  for (const Setting& setting : read_config_file(write("a.toml", "gradient_clip = 2\n"))) apply(config, setting);
  EXPECT_EQ(config.gradient_clip, 2.0);
}

TEST_F(ConfigFile, WrongKeyNamesTheClosestAndTheLine) {
  for (const auto& [name, text] : {std::pair{"a.toml", "steps = 5\n\nlocal_stepps = 3\n"},
                                   std::pair{"a.json", "{\"steps\": 5,\n\n\"local_stepps\": 3}"}}) {
    const std::string message = refusal(name, text);
    EXPECT_TRUE(contains(message, "local_stepps")) << message;
    EXPECT_TRUE(contains(message, "did you mean 'local_steps'?")) << message;
    EXPECT_TRUE(contains(message, std::string(name) + ", line 3)")) << message;
  }
}

TEST_F(ConfigFile, WrongKindNamesKeyAndLine) {
  const std::string message = refusal("a.toml", "\nlocal_steps = \"12\"\n");
  EXPECT_TRUE(contains(message, "local_steps expects a whole number or 'auto', not '12'")) << message;
  EXPECT_TRUE(contains(message, "line 2")) << message;
}

TEST_F(ConfigFile, WrongSyntaxNamesTheLine) {
  EXPECT_TRUE(contains(refusal("a.toml", "steps = 5\nbatch = = 3\n"), "line 2"))
      << refusal("a.toml", "steps = 5\nbatch = = 3\n");
  EXPECT_TRUE(contains(refusal("a.json", "{\"steps\": 5,\n\"batch\": }"), "line 2"));
  EXPECT_TRUE(contains(refusal("a.json", "[1, 2]"), "not an object"));
  EXPECT_TRUE(contains(refusal("a.json", ""), "not valid"));
}

TEST_F(ConfigFile, SectionsAndListsAreRefused) {
  EXPECT_TRUE(contains(refusal("a.toml", "[sync]\nlocal_steps = 3\n"), "'sync' is a section or a list"));
  EXPECT_TRUE(contains(refusal("a.json", R"({"steps": [1, 2]})"), "'steps' is a section or a list"));
}

TEST_F(ConfigFile, KeyTwiceIsRefused) {
  EXPECT_TRUE(contains(refusal("a.toml", "local_steps = 3\nlocal-steps = 4\n"), "twice"));
  EXPECT_TRUE(contains(refusal("a.toml", "steps = 3\nsteps = 4\n"), "line 2"));
}

TEST_F(ConfigFile, NotANumberInTomlIsRefused) {
  EXPECT_TRUE(contains(refusal("a.toml", "learning_rate = nan\n"), "learning_rate = nan is not allowed"));
  EXPECT_TRUE(contains(refusal("a.toml", "learning_rate = -inf\n"), "learning_rate = -inf is not allowed"));
}

TEST_F(ConfigFile, MissingFileIsADataError) {
  EXPECT_THROW(read_config_file(folder_ / "none.toml"), DataError);
  EXPECT_THROW(read_config_file(folder_), DataError);
}

}  // namespace
}  // namespace co2::cli
