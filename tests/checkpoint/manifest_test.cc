#include "checkpoint/manifest.h"

#include <co2/error.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/temporary.h"

namespace co2::checkpoint {
namespace {

const std::string kSum(32, 'a');

Manifest example() {
  return {.co2 = "0.1.0",
          .step = 120,
          .workers = 2,
          .island_size = 2,
          .zero = 3,
          .about = {{"task", "gpt"}, {"seed", std::int64_t{-3}}, {"loss", 2.0}, {"a \"name\" ü", "\n"}},
          .files = {{"worker-00000.safetensors", 0, kSum},
                    {"worker-00001.safetensors", std::numeric_limits<std::int64_t>::max(), kSum},
                    {"notes.txt", 12, kSum}}};
}

std::string problem_with(const std::string& text) {
  return test::message_of<DataError>([&] { parse_manifest(text, "RUN/manifest.json"); });
}

TEST(Manifest, RoundTrip) {
  const auto text = manifest_text(example());
  EXPECT_EQ(parse_manifest(text, "x"), example());
  EXPECT_TRUE(text.starts_with("{\n  \"format\": 1,\n  \"co2\": \"0.1.0\",\n  \"step\": 120,\n")) << text;
  Manifest without;
  without.files = {{"worker-00000.safetensors", 1, kSum}};
  EXPECT_EQ(parse_manifest(manifest_text(without), "x"), without);
}

TEST(Manifest, NumbersKeepTheirKindAndBits) {
  auto manifest = example();
  manifest.about = {{"a", 1.0 / 3}, {"b", -0.0}, {"c", 1e300}, {"d", std::numeric_limits<std::int64_t>::min()}};
  const auto back = parse_manifest(manifest_text(manifest), "x");
  EXPECT_EQ(back, manifest);
  EXPECT_TRUE(std::signbit(std::get<double>(back.about.at("b"))));
  manifest.about = {{"a", std::numeric_limits<double>::infinity()}};
  EXPECT_TRUE(std::isnan(std::get<double>(parse_manifest(manifest_text(manifest), "x").about.at("a"))));
}

TEST(Manifest, EveryFlippedBitAndEveryMissingByteIsNoticed) {
  const auto text = manifest_text(example());
  for (std::size_t at = 0; at < text.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      auto bad = text;
      bad[at] = static_cast<char>(bad[at] ^ (1 << bit));
      EXPECT_NE(problem_with(bad), "") << "bit " << bit << " of byte " << at;
    }
    EXPECT_NE(problem_with(text.substr(0, at)), "") << at;
  }
  EXPECT_NE(problem_with(text + "\n"), "");
}

TEST(Manifest, ANewerFormatIsRefusedByName) {
  const auto message = problem_with(sealed(R"({"format": 2, "co2": "7.1.0", "whatever": {"a": []}})"));
  EXPECT_EQ(message, "RUN/manifest.json was written by a newer co2 (7.1.0), format 2; this one reads 1: update co2");
  EXPECT_NE(problem_with(sealed(R"({"format": 3, "co2": 4})")).find("format 3"), std::string::npos);
}

TEST(Manifest, AbsurdFieldsAreRefused) {
  const std::string start = R"("format":1,"co2":"0.1.0",)";
  const std::string numbers = R"("step":1,"workers":1,"island_size":1,"zero":0,)";
  const std::string file = fmt::format(R"({{"name":"worker-00000.safetensors","bytes":1,"checksum":"{}"}})", kSum);
  const std::string rest = R"("about":{},"files":[)" + file + "]";
  ASSERT_EQ(problem_with(sealed("{" + start + numbers + rest + "}")), "");

  const auto with_numbers = [&](const std::string& other) { return "{" + start + other + "," + rest + "}"; };
  const auto with_files = [&](const std::string& files) {
    return "{" + start + numbers + R"("about":{},"files":)" + files + "}";
  };
  const auto with_about = [&](const std::string& about) {
    return "{" + start + numbers + R"("files":[)" + file + R"(],"about":)" + about + "}";
  };
  const auto with_name = [&](const std::string& name) {
    return with_files(fmt::format(R"([{},{{"name":"{}","bytes":1,"checksum":"{}"}}])", file, name, kSum));
  };
  const auto with_entry = [&](const std::string& entry) { return with_files("[" + file + "," + entry + "]"); };
  for (const auto& object : std::vector<std::string>{
           "{}",
           "[]",
           "1",
           "{" + start + numbers + rest + ",}",
           "{" + start + numbers + rest + R"(,"more":1})",
           "{" + start + start + numbers + rest + "}",
           "{" + start + numbers + rest + R"(,"about":{}})",
           R"({"format":0,"co2":"0.1.0",)" + numbers + rest + "}",
           R"({"format":-1,"co2":"0.1.0",)" + numbers + rest + "}",
           R"({"format":"1","co2":"0.1.0",)" + numbers + rest + "}",
           R"({"format":1.0,"co2":"0.1.0",)" + numbers + rest + "}",
           R"({"format":1,"co2":1,)" + numbers + rest + "}",
           R"({"format":1,)" + numbers + rest + "}",
           with_numbers(R"("step":-1,"workers":1,"island_size":1,"zero":0)"),
           with_numbers(R"("step":1000000000000,"workers":1,"island_size":1,"zero":0)"),
           with_numbers(R"("step":18446744073709551615,"workers":1,"island_size":1,"zero":0)"),
           with_numbers(R"("step":1e3,"workers":1,"island_size":1,"zero":0)"),
           with_numbers(R"("step":null,"workers":1,"island_size":1,"zero":0)"),
           with_numbers(R"("workers":1,"island_size":1,"zero":0)"),
           with_numbers(R"("step":1,"workers":0,"island_size":1,"zero":0)"),
           with_numbers(R"("step":1,"workers":2,"island_size":1,"zero":0)"),
           with_numbers(R"("step":1,"workers":4294967297,"island_size":1,"zero":0)"),
           with_numbers(R"("step":1,"workers":1,"island_size":0,"zero":0)"),
           with_numbers(R"("step":1,"workers":1,"island_size":2,"zero":0)"),
           with_numbers(R"("step":1,"workers":1,"island_size":1,"zero":4)"),
           with_numbers(R"("step":1,"workers":1,"island_size":1,"zero":-1)"),
           with_files("{}"),
           with_files("[]"),
           with_files("[1]"),
           with_files("[[" + file + "]]"),
           with_files("[" + file + "," + file + "]"),
           with_name(""),
           with_name("."),
           with_name(".."),
           with_name("../x"),
           with_name("/etc/passwd"),
           with_name("a/b"),
           with_name("a\\\\b"),
           with_name("a\\u0000b"),
           with_name("a\\nb"),
           with_name("a b"),
           with_name(".hidden"),
           with_name("\\u00e4"),
           with_name("manifest.json"),
           with_name(std::string(201, 'a')),
           with_entry(fmt::format(R"({{"name":"a","bytes":-1,"checksum":"{}"}})", kSum)),
           with_entry(fmt::format(R"({{"name":"a","bytes":9223372036854775808,"checksum":"{}"}})", kSum)),
           with_entry(fmt::format(R"({{"name":"a","bytes":1.5,"checksum":"{}"}})", kSum)),
           with_entry(fmt::format(R"({{"name":"a","checksum":"{}"}})", kSum)),
           with_entry(fmt::format(R"({{"name":"a","bytes":1,"more":1,"checksum":"{}"}})", kSum)),
           with_entry(fmt::format(R"({{"name":"a","bytes":1,"bytes":1,"checksum":"{}"}})", kSum)),
           with_entry(R"({"name":"a","bytes":1})"),
           with_entry(R"({"name":"a","bytes":1,"checksum":""})"),
           with_entry(R"({"name":"a","bytes":1,"checksum":7})"),
           with_entry(R"({"name":"a","bytes":1,"checksum":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"})"),
           with_about("[]"),
           with_about("null"),
           with_about(R"({"a":{}})"),
           with_about(R"({"a":[1]})"),
           with_about(R"({"a":true})"),
           with_about(R"({"a":1,"a":1})"),
           with_about(R"({"a":18446744073709551615})"),
           with_about(R"({"a":1e999})"),
           with_about("{\"a\":\"\xff\"}"),
           with_about(std::string(100'000, '[')),
       }) {
    const auto message = problem_with(sealed(object));
    EXPECT_TRUE(message.starts_with("RUN/manifest.json is not a sound manifest: ")) << object << "\n" << message;
  }
}

TEST(Manifest, WhatCouldNotBeReadIsNotWritten) {
  const auto refuses = [](auto change) {
    auto manifest = example();
    change(manifest);
    EXPECT_THROW(manifest_text(manifest), DataError);
  };
  refuses([](Manifest& it) { it.step = -1; });
  refuses([](Manifest& it) { it.workers = 3; });
  refuses([](Manifest& it) { it.files[2].name = "../x"; });
  refuses([](Manifest& it) { it.files[2] = it.files[1]; });
  refuses([](Manifest& it) { it.about["a"] = "\xff"; });
}

}  // namespace
}  // namespace co2::checkpoint
