#include "lab/report.h"

#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <torch/version.h>

#include <cmath>
#include <ctime>

#include "base/cores.h"
#include "processes/placement.h"
#include "train/summary.h"

namespace co2::lab {

namespace {

using Json = nlohmann::ordered_json;

Json to_json(const Spread& spread) {
  if (spread.count == 0) return nullptr;
  return {{"median", spread.median}, {"low", spread.low}, {"high", spread.high}, {"count", spread.count}};
}

Json to_json(const std::optional<int>& number) { return number ? Json(*number) : Json(nullptr); }

Json to_json(const Rate& rate) { return rate.unlimited() ? Json(nullptr) : Json(rate.bits_per_second); }

Json machine() {
  utsname system{};
  uname(&system);
  struct sysinfo info {};
  sysinfo(&info);
  return {{"processor", processes::processor_name()},
          {"cores", processes::format_cores(usable_cores())},
          {"memory_bytes", static_cast<std::uint64_t>(info.totalram) * info.mem_unit},
          {"kernel", std::string(system.sysname) + " " + system.release}};
}

std::string now() {
  const std::time_t time = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&time, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

Json to_json(const RunEnd& end) {
  Json changes = Json::array();
  for (const RateChange& change : end.changes) {
    changes.push_back({{"wall_seconds", change.wall_seconds}, {"phase", change.phase}});
  }
  return changes;
}

Json to_json(const RunRecord& record, const LabOptions& options) {
  Json json = {{"rate", options.scenarios[record.scenario].text},
               {"strategy", options.items[record.item].label},
               {"repeat", record.repeat + 1},
               {"folder", record.folder.string()},
               {"seconds", record.end.seconds},
               {"error", record.figures ? Json(nullptr) : Json(record.end.why)}};
  json["rate_changes"] = to_json(record.end);
  json["links"] = Json::array();
  for (const LinkCheck& link : record.links) {
    json["links"].push_back(
        {{"from", link.from}, {"to", link.to}, {"asked", to_json(link.asked)}, {"measured", link.measured}});
  }
  if (!record.figures) return json;
  const Figures& figures = *record.figures;  // NaN becomes null
  json.update(Json{{"units_per_second", figures.units_per_second},
                   {"training_seconds", figures.training_seconds},
                   {"final_exchange_seconds", figures.final_exchange_seconds},
                   {"steps", figures.steps},
                   {"transfer_seconds", figures.transfer_seconds},
                   {"exposed_seconds", figures.exposed_seconds},
                   {"overlap", figures.overlap()},
                   {"bytes_sent_per_worker", figures.bytes_per_worker},
                   {"local_steps", to_json(figures.local_steps)},
                   {"fragments", to_json(figures.fragments)},
                   {"train_loss", figures.train_loss},
                   {"validation_loss", figures.validation_loss}});
  json["metrics"] = train::metrics_json(options.words, figures.metrics);
  return json;
}

Json to_json(const Row& row, const LabOptions& options) {
  Json metrics = Json::object();
  for (std::size_t i = 0; i < row.metrics.size(); ++i) metrics[options.words.metrics[i]] = to_json(row.metrics[i]);
  return {{"strategy", options.items[row.item].label},
          {"done", row.done},
          {"failed", row.failed},
          {"units_per_second", to_json(row.units_per_second)},
          {"ratio_to_none", to_json(row.to_none)},
          {"ratio_to_ddp", to_json(row.to_ddp)},
          {"transfer_ms_per_step", to_json(row.transfer_ms)},
          {"exposed_ms_per_step", to_json(row.exposed_ms)},
          {"overlap", to_json(row.overlap)},
          {"bytes_per_worker_and_step", to_json(row.bytes_per_step)},
          {"local_steps", to_json(row.local_steps)},
          {"fragments", to_json(row.fragments)},
          {"train_loss", to_json(row.train_loss)},
          {"validation_loss", to_json(row.validation_loss)},
          {"metrics", metrics},
          {"seconds_to_target", to_json(row.seconds_to_target)}};
}

}  // namespace

Json report(const LabOptions& options, const std::vector<RunRecord>& records, const std::vector<Table>& tables) {
  Json json = {{"co2", options.version}, {"libtorch", TORCH_VERSION}, {"time", now()}, {"command", options.command}};
  json["machine"] = machine();
  json["workers"] = options.workers;
  json["repeats"] = options.repeats;
  for (const RunRecord& record : records) {
    if (!record.figures) continue;
    json["unit"] = record.figures->unit;
    json["parameters"] = record.figures->parameters;
    if (!record.figures->data.empty()) json[options.words.data] = record.figures->data;
    break;
  }
  json["configurations"] = Json::object();
  for (const Item& item : options.items) json["configurations"][item.label] = item.config;
  json["tables"] = Json::array();
  for (const Table& table : tables) {
    Json rows = Json::array();
    for (const Row& row : table.rows) rows.push_back(to_json(row, options));
    json["tables"].push_back({{"rate", options.scenarios[table.scenario].text},
                              {"bits_per_second", to_json(options.scenarios[table.scenario].slowest())},
                              {"target_loss", table.target_loss},
                              {"rows", std::move(rows)}});
  }
  json["runs"] = Json::array();
  for (const RunRecord& record : records) json["runs"].push_back(to_json(record, options));
  return json;
}

}  // namespace co2::lab
