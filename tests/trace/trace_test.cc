#include <co2/trace.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace co2 {
namespace {

using std::chrono::milliseconds;

Span span(Trace& trace, SpanKind kind, int begin_ms, int end_ms, int round = 0, std::int64_t bytes = 0) {
  return {kind, trace.origin() + milliseconds(begin_ms), trace.origin() + milliseconds(end_ms), round, 0, bytes};
}

TEST(Trace, OverlapIsWhatWasNotWaitedFor) {
  Trace trace;
  trace.record(span(trace, SpanKind::kTransfer, 0, 80, 3, 100));
  trace.record(span(trace, SpanKind::kWait, 60, 80, 3));
  const Overlap overlap = trace.rounds().at(3);
  EXPECT_NEAR(overlap.transfer_seconds, 0.080, 1e-9);
  EXPECT_NEAR(overlap.exposed_seconds, 0.020, 1e-9);
  EXPECT_NEAR(overlap.overlap(), 0.75, 1e-9);
  EXPECT_EQ(overlap.bytes, 100);
}

TEST(Trace, SideBySideTransfersCountOnce) {
  Trace trace;
  trace.record(span(trace, SpanKind::kTransfer, 0, 50));
  trace.record(span(trace, SpanKind::kTransfer, 10, 60));
  trace.record(span(trace, SpanKind::kTransfer, 20, 30));
  trace.record(span(trace, SpanKind::kTransfer, 100, 110));
  EXPECT_NEAR(trace.total().transfer_seconds, 0.070, 1e-9);
  EXPECT_NEAR(trace.seconds(SpanKind::kTransfer), 0.120, 1e-9);
}

TEST(Trace, NothingToTransferIsFullOverlap) { EXPECT_EQ(Trace().total().overlap(), 1); }

TEST(Trace, TheRingForgetsButTotalsDoNot) {
  Trace trace(4);
  for (int i = 0; i < 10; ++i) trace.record(span(trace, SpanKind::kTransfer, 10 * i, 10 * i + 5, i, 1));
  const auto spans = trace.spans();
  ASSERT_EQ(spans.size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(spans[i].round, static_cast<std::int64_t>(i) + 6);
  EXPECT_EQ(trace.total().bytes, 10);
}

TEST(Trace, PerfettoJsonIsWellFormed) {
  Trace trace;
  trace.record(span(trace, SpanKind::kCompute, 0, 10));
  trace.record(span(trace, SpanKind::kTransfer, 5, 15, 1, 77));
  const auto json = nlohmann::json::parse(perfetto_json(trace.spans(), trace.origin(), 2));
  const auto& events = json.at("traceEvents");
  int complete = 0;
  int begins = 0;
  int ends = 0;
  for (const auto& event : events) {
    EXPECT_EQ(event.at("pid"), 2);
    if (event.at("ph") == "X") {
      ++complete;
      EXPECT_NEAR(event.at("dur").get<double>(), 10'000, 1e-6);
    }
    if (event.at("ph") == "b") {
      ++begins;
      EXPECT_EQ(event.at("args").at("bytes"), 77);
    }
    if (event.at("ph") == "e") ++ends;
  }
  EXPECT_EQ(complete, 1);
  EXPECT_EQ(begins, 1);
  EXPECT_EQ(ends, 1);
}

}  // namespace
}  // namespace co2
