#include "base/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "base/descriptor.h"
#include "base/files.h"

namespace co2 {
namespace {

class ChildProcessTest : public testing::Test {
 protected:
  ChildSpec shell(const std::string& script) const { return {.command = {"sh", "-c", script}}; }
  /// Runs it to its end; what it wrote is in output().
  int run(ChildSpec spec) {
    const Descriptor file(open(path().c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    spec.standard[1] = file.get();
    const pid_t pid = start_child(spec);
    EXPECT_EQ(getpgid(pid), pid);
    int status = 0;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }
  std::string path() const { return (folder_.path() / "out").string(); }
  std::string output() const { return read_file(path()); }

  const TemporaryFolder folder_{testing::TempDir()};
};

TEST_F(ChildProcessTest, StartsInItsFolder) {
  ChildSpec spec = shell("pwd -P");
  spec.folder = std::filesystem::canonical(folder_.path());
  EXPECT_EQ(run(spec), 0);
  EXPECT_EQ(output(), spec.folder + "\n");
}

TEST_F(ChildProcessTest, KeepsOpenWhatWasToBeInheritedUnlessAllOthersAreClosed) {
  const Descriptor open_one(dup(STDERR_FILENO));  // not marked to be closed by exec
  const Descriptor kept(fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0));
  ChildSpec spec = shell(
      fmt::format("test -e /proc/self/fd/{}; a=$?; test -e /proc/self/fd/{}; echo $a $?", open_one.get(), kept.get()));
  EXPECT_EQ(run(spec), 0);
  EXPECT_EQ(output(), "0 1\n");
  spec.close_others = true;
  spec.inherit = {kept.get()};
  EXPECT_EQ(run(spec), 0);
  EXPECT_EQ(output(), "1 0\n");
}

TEST_F(ChildProcessTest, SignalsThatWeIgnoreCanWorkAgain) {
  const auto old = std::signal(SIGTERM, SIG_IGN);
  ChildSpec spec = shell("kill -TERM $$; echo lives");
  EXPECT_EQ(run(spec), 0);
  EXPECT_EQ(output(), "lives\n");
  spec.default_signals = {SIGTERM};
  EXPECT_EQ(run(spec), 128 + SIGTERM);
  EXPECT_EQ(output(), "");
  std::signal(SIGTERM, old);
}

TEST_F(ChildProcessTest, AProgramOrFolderThatIsNotThereIsAnErrorWithItsCause) {
  ChildSpec spec{.command = {"co2-no-such-program"}};
  try {
    start_child(spec);
    FAIL();
  } catch (const CannotExecute& error) {
    EXPECT_EQ(error.exit_code(), 127);
    EXPECT_EQ(error.cause(), ENOENT);
    EXPECT_STREQ(error.what(), "there is no program 'co2-no-such-program': check the name, or give its path");
  }
  spec = shell("true");
  spec.folder = (folder_.path() / "nowhere").string();
  EXPECT_THROW(start_child(spec), CannotExecute);
  spec.folder.clear();
  spec.prepare = [] { return EPERM; };
  try {
    start_child(spec);
    FAIL();
  } catch (const CannotExecute& error) {
    EXPECT_EQ(error.exit_code(), 126);
    EXPECT_EQ(error.cause(), EPERM);
  }
}

}  // namespace
}  // namespace co2
