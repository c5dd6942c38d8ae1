#pragma once

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

#include "base/files.h"

namespace co2::test {

/// A folder for one test.
struct TestFolder : TemporaryFolder {
  TestFolder() : TemporaryFolder(std::filesystem::temp_directory_path()) {}
  std::filesystem::path operator/(const std::string& name) const { return path() / name; }
};

/// An environment variable that has its old value again at the end of the scope.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const std::string& value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    setenv(name, value.c_str(), 1);
  }
  ~ScopedVariable() {
    if (old_) {
      setenv(name_, old_->c_str(), 1);
    } else {
      unsetenv(name_);
    }
  }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> old_;
};

/// The message of the error of type E that `body` throws; empty if it throws none.
template <typename E, typename Body>
std::string message_of(Body&& body) {
  try {
    body();
  } catch (const E& error) {
    return error.what();
  }
  return "";
}

}  // namespace co2::test
