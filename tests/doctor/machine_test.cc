#include "doctor/machine.h"

#include <gtest/gtest.h>

#include <vector>

#include "doctor/interface.h"
#include "doctor/multiply_add.h"
#include "doctor/product.h"

namespace co2::doctor {
namespace {

TEST(Machine, AContainersLimitIsReadAsCores) {
  EXPECT_EQ(parse_core_quota("150000 100000"), 1.5);
  EXPECT_EQ(parse_core_quota("max 100000"), 0);
  EXPECT_EQ(parse_core_quota(""), 0);
  EXPECT_EQ(parse_core_quota("-1 100000"), 0);
  EXPECT_EQ(parse_core_quota("5 0"), 0);
}

TEST(Machine, SettingsAreFoundByTheirWholeName) {
  const char* build = "Build settings: MY_BLAS_INFO=no, BLAS_INFO=open, TORCH_VERSION=2.13.0\nmore";
  EXPECT_EQ(build_setting(build, "BLAS_INFO"), "open");
  EXPECT_EQ(build_setting(build, "TORCH_VERSION"), "2.13.0");
  EXPECT_EQ(build_setting(build, "CUDA"), "");
}

TEST(Machine, FactsTravelUnchanged) {
  WorkerFacts facts = look_around(3, "1.2");
  EXPECT_FALSE(facts.cores.empty());
  EXPECT_FALSE(facts.host.empty());
  EXPECT_GT(facts.memory_available, 0);
  EXPECT_EQ(facts.torch_version.substr(0, 2), "2.");
  facts.step = {1, 2, 3, 4};
  facts.interface = {.name = "x\"y", .address = "::1", .loopback = true, .bridge = true, .physical = "z"};
  const WorkerFacts copy = facts_from_text(to_text(facts));
  EXPECT_EQ(to_text(copy), to_text(facts));
  EXPECT_EQ(copy.interface.name, "x\"y");
  EXPECT_EQ(copy.step.highest, 3);
}

TEST(Machine, ThePeakGrowsWithMemoryThatIsUsed) {
  const double before = own_peak_bytes();
  const std::vector<char> used(200'000'000, 'x');
  EXPECT_GE(own_peak_bytes(), before + 0.9 * static_cast<double>(used.size()));
}

TEST(Machine, NoProductIsFasterThanMultiplyAdds) {
  const Product product = measure_product();
  EXPECT_GT(product.flops, 0);
  // Clocks change between two measurements, so not to the last percent.
  EXPECT_LT(product.flops, 1.5 * product.multiply_add_flops);
}

TEST(Machine, TheInterfaceOfAnAddressIsFound) {
  Rendezvous here;
  here.host = "127.0.0.1";
  const Interface interface = own_interface(here);
  EXPECT_TRUE(interface.loopback);
  EXPECT_EQ(interface.address, "127.0.0.1");
  here.interface = interface.name;
  EXPECT_EQ(own_interface(here).address, "127.0.0.1");
  here.interface = "nonesuch0";
  EXPECT_THROW(own_interface(here), std::exception);
}

TEST(Machine, BridgesAreKnownByTheirNames) {
  for (const char* name : {"docker0", "br-1234", "virbr0", "veth12", "cni0", "cali1"})
    EXPECT_TRUE(is_bridge_name(name));
  for (const char* name : {"eth0", "enp3s0", "ib0", "bond0", "lo", "wlan0", ""}) EXPECT_FALSE(is_bridge_name(name));
}

}  // namespace
}  // namespace co2::doctor
