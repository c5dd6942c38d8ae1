// What outlives a step must not be scattered in memory: between the tensors of that step it would keep the allocator
// from using their memory again, and a process would grow for hours.

#include <co2/trace.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

namespace {
thread_local long blocks = 0;  // that are held
}  // namespace

void* operator new(std::size_t size) {
  void* memory = std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  ++blocks;
  return memory;
}
void operator delete(void* memory) noexcept {
  if (memory != nullptr) --blocks;
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept { operator delete(memory); }

namespace co2 {
namespace {

TEST(Trace, HoldsFewBlocksOfMemory) {
  Trace trace;
  const auto record = [&](int round) {
    const Clock::time_point begin = trace.origin() + std::chrono::milliseconds(10 * round);
    for (int fragment = 0; fragment < 3; ++fragment) {
      const Clock::time_point launch = begin + std::chrono::milliseconds(3 * fragment);
      trace.record({SpanKind::kTransfer, launch, launch + std::chrono::milliseconds(1), round, fragment, 100});
    }
  };
  for (int round = 0; round < 10; ++round) record(round);
  const long before = blocks;
  for (int round = 10; round < 3000; ++round) record(round);
  EXPECT_LT(blocks - before, 10);
  EXPECT_EQ(trace.rounds().size(), 3000);
  for (int round = 3000; round < 20'000; ++round) record(round);
  EXPECT_LT(blocks - before, 10);
  EXPECT_EQ(trace.rounds().size(), 4096);
  EXPECT_EQ(trace.rounds().begin()->first, 20'000 - 4096);
  EXPECT_NEAR(trace.total().transfer_seconds, 60.0, 1e-6);
}

}  // namespace
}  // namespace co2
