#include "flat/flat_parameters.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <random>

#include "support/toy.h"

namespace co2 {
namespace {

using test::Toy;

TEST(FlatParameters, AreViewsOfOneBuffer) {
  Toy toy({3, 0, 1025, 1}, 2.5);
  auto optimizer = test::plain_sgd(toy, 0.1);
  const FlatParameters flat(optimizer);
  EXPECT_EQ(flat.numel(), 16 + 0 + 1040 + 16);
  for (const at::Tensor& p : toy.parameter) EXPECT_TRUE(torch::all(p == 2.5).item<bool>());
  flat.data().fill_(7);
  for (const at::Tensor& p : toy.parameter) EXPECT_TRUE(torch::all(p == 7).item<bool>());
}

TEST(FlatParameters, TrainLikeUnflattenedOnes) {
  torch::manual_seed(1);
  torch::nn::Linear a(7, 5);
  torch::manual_seed(1);
  torch::nn::Linear b(7, 5);
  torch::optim::Adam optimizer_a(a->parameters(), 0.01);
  torch::optim::Adam optimizer_b(b->parameters(), 0.01);
  const FlatParameters flat(optimizer_b);
  const torch::Tensor x = torch::arange(14, torch::kFloat).view({2, 7});
  for (int i = 0; i < 5; ++i) {
    for (auto [net, optimizer] : {std::pair{&a, &optimizer_a}, std::pair{&b, &optimizer_b}}) {
      optimizer->zero_grad();
      (*net)(x).pow(2).sum().backward();
      optimizer->step();
    }
  }
  EXPECT_TRUE(a->weight.equal(b->weight));
  EXPECT_TRUE(a->bias.equal(b->bias));
}

// Rule 3: every element in exactly one fragment and one group, for any sizes.
TEST(FlatParameters, FragmentsAndGroupsCoverEverythingOnce) {
  std::mt19937 random(5);
  for (int i = 0; i < 200; ++i) {
    std::vector<std::int64_t> sizes(1 + random() % 6);
    for (auto& size : sizes) size = random() % 3 == 0 ? random() % 3 : random() % 3000;
    Toy toy(sizes);
    std::vector<torch::optim::OptimizerParamGroup> groups;
    for (const at::Tensor& p : toy.parameter) {
      if (groups.empty() || random() % 2 == 0) groups.emplace_back(std::vector<at::Tensor>{});
      groups.back().params().push_back(p);
    }
    torch::optim::SGD optimizer(groups, torch::optim::SGDOptions(0.1));
    const FlatParameters flat(optimizer);
    const auto expect_cover = [&](const std::vector<Range>& ranges) {
      std::int64_t next = 0;
      for (const Range& range : ranges) {
        EXPECT_EQ(range.begin, next);
        EXPECT_GE(range.size(), 0);
        EXPECT_EQ(range.begin % FlatParameters::kAlignment, 0);
        next = range.end;
      }
      EXPECT_EQ(next, flat.numel());
    };
    expect_cover(flat.groups());
    for (const int count : {1, 2, 5, 12}) {
      const auto fragments = flat.fragments(count);
      EXPECT_EQ(fragments.size(), static_cast<std::size_t>(count));
      expect_cover(fragments);
    }
  }
}

}  // namespace
}  // namespace co2
