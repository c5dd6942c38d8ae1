#pragma once

// The Python package of torch contains c10d's ProcessGroupGloo.hpp but not the Gloo headers that it includes. These
// declarations are what that header mentions, so that src/comm/c10d_group.cc can create a group; Gloo itself is inside
// LibTorch. Nothing here is ever constructed, called or laid out by our code. CMake prefers Gloo's own headers where
// LibTorch brings them.
#include <chrono>

namespace gloo {
class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};
}  // namespace gloo
