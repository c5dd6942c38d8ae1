#include <co2/trace.h>
#include <fmt/format.h>

#include <array>
#include <iterator>

namespace co2 {

namespace {

// Rows of a worker in the viewer: what the training thread does, and what is on the wire.
constexpr int kTrainingRow = 0;
constexpr int kWireRow = 1;

struct Look {
  std::string_view name;
  int row;
};
constexpr std::array<Look, 4> kLooks{
    {{"compute", kTrainingRow}, {"outer step", kTrainingRow}, {"transfer", kWireRow}, {"wait", kTrainingRow}}};

double microseconds(Clock::time_point t, Clock::time_point origin) {
  return std::chrono::duration<double, std::micro>(t - origin).count();
}

}  // namespace

std::string perfetto_json(const std::vector<Span>& spans, Clock::time_point origin, int rank) {
  std::string json = "{\"traceEvents\":[";
  auto out = std::back_inserter(json);
  fmt::format_to(out, R"({{"ph":"M","pid":{0},"name":"process_name","args":{{"name":"worker {0}"}}}},)", rank);
  fmt::format_to(out, R"({{"ph":"M","pid":{},"tid":{},"name":"thread_name","args":{{"name":"training"}}}},)", rank,
                 kTrainingRow);
  fmt::format_to(out, R"({{"ph":"M","pid":{},"tid":{},"name":"thread_name","args":{{"name":"wire"}}}})", rank,
                 kWireRow);
  for (const Span& span : spans) {
    const Look& look = kLooks[static_cast<std::size_t>(span.kind)];
    const double begin = microseconds(span.begin, origin);
    const double duration = microseconds(span.end, span.begin);
    if (look.row == kWireRow) {
      // Transfers of different buckets overlap each other, which only asynchronous events may do.
      fmt::format_to(out,
                     R"(,{{"ph":"b","cat":"wire","id":"{0}.{1:.3f}","pid":{0},"tid":{2},"ts":{1:.3f},"name":"{3}",)"
                     R"("args":{{"round":{4},"fragment":{5},"bytes":{6}}}}})",
                     rank, begin, look.row, look.name, span.round, span.fragment, span.bytes);
      fmt::format_to(out,
                     R"(,{{"ph":"e","cat":"wire","id":"{0}.{1:.3f}","pid":{0},"tid":{2},"ts":{3:.3f},"name":"{4}"}})",
                     rank, begin, look.row, begin + duration, look.name);
    } else {
      fmt::format_to(out,
                     R"(,{{"ph":"X","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},"name":"{}","args":{{"round":{},)"
                     R"("fragment":{}}}}})",
                     rank, look.row, begin, duration, look.name, span.round, span.fragment);
    }
  }
  json += "]}";
  return json;
}

}  // namespace co2
