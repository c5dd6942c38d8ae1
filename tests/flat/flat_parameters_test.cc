#include "flat/flat_parameters.h"
#include "flat/shard.h"

#include <co2/error.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <random>
#include <set>

#include "support/toy.h"

namespace co2 {
namespace {

using test::as_parameters;
using test::Toy;

TEST(FlatParameters, AreViewsOfOneBuffer) {
  Toy toy({3, 0, 1025, 1}, 2.5);
  const FlatParameters flat(as_parameters(toy.parameter));
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
  const FlatParameters flat(as_parameters(b->parameters()));
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

TEST(FlatParameters, KeepTheOrderOfElementsInMemory) {
  struct Net : torch::nn::Module {
    Net() {
      last = register_parameter("last", torch::randn({4, 3, 5, 2}).to(at::MemoryFormat::ChannelsLast));
      turned = register_parameter("turned", torch::randn({6, 7}).t());
      gaps = register_parameter("gaps", torch::randn({6, 8}).slice(1, 0, 8, 2));
    }
    at::Tensor last, turned, gaps;
  } net;
  std::vector<at::Tensor> before;
  for (const at::Tensor& p : net.parameters()) before.push_back(p.detach().clone());
  FlatParameters flat(as_parameters(net.parameters()));
  const auto expect_same = [&] {
    for (std::size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(net.parameters()[i].equal(before[i])) << i;
    EXPECT_TRUE(net.last.is_contiguous(at::MemoryFormat::ChannelsLast));
    EXPECT_TRUE(net.turned.t().is_contiguous());
    EXPECT_TRUE(net.gaps.is_contiguous());  // there are none in the flat buffer
  };
  expect_same();
  const at::Tensor copy = flat.data().clone();
  flat.point_to(copy);
  expect_same();
  flat.point_to_unit(0, copy.clone());
  expect_same();
}

TEST(FlatParameters, NoticeThatTheyWereMoved) {
  torch::nn::Linear net(7, 5);
  const FlatParameters flat(as_parameters(net->parameters()));
  flat.check_in_place();
  net->to(torch::kFloat);  // changes nothing
  flat.check_in_place();
  net->bias.set_data(net->bias.clone());
  EXPECT_THROW(flat.check_in_place(), OptionError);
}

// Rule 3: every element in exactly one unit, group, shard and fragment, for any sizes and numbers of workers.
TEST(FlatParameters, UnitsGroupsShardsAndFragmentsCoverEverythingOnce) {
  std::mt19937 random(5);
  for (int i = 0; i < 200; ++i) {
    std::vector<std::int64_t> sizes(1 + random() % 6);
    for (auto& size : sizes) size = random() % 3 == 0 ? random() % 3 : random() % 3000;
    Toy toy(sizes);
    std::vector<std::size_t> groups;
    for (std::size_t p = 0; p < sizes.size(); ++p) {
      groups.push_back(p == 0 ? 0 : groups.back() + (random() % 2 == 0 ? 1 : 0));
    }
    std::shuffle(groups.begin(), groups.end(), random);
    const auto parameters = as_parameters(toy.parameter, [&](std::size_t p) { return groups[p]; });
    const int parts = std::vector{1, 1, 2, 3, 4, 7, 64}[random() % 7];
    const std::int64_t unit = random() % 2 == 0 ? 0 : random() % 2000;
    FlatLayout layout{.parts = parts, .unit_elements = unit};
    if (sizes.size() > 1 && random() % 2 == 0) layout.units = {{0}, {sizes.size() - 1}};
    const FlatParameters flat(parameters, layout);
    std::set<std::size_t> given;
    const auto expect_cover = [](const std::vector<Range>& ranges, std::int64_t numel, std::int64_t multiple) {
      std::int64_t next = 0;
      for (const Range& range : ranges) {
        EXPECT_EQ(range.begin, next);
        EXPECT_GE(range.size(), 0);
        EXPECT_EQ(range.begin % multiple, 0);
        next = range.end;
      }
      EXPECT_EQ(next, numel);
    };
    constexpr std::int64_t kAlignment = FlatParameters::kAlignment;
    std::vector<Range> stretches;
    for (const auto& [range, group] : flat.stretches()) stretches.push_back(range);
    expect_cover(stretches, flat.numel(), kAlignment);
    for (std::size_t p = 0; p < flat.parameters().size(); ++p) {
      const Range where = flat.where(p);
      EXPECT_TRUE(given.insert(flat.given(p)).second);
      EXPECT_TRUE(flat.parameters()[p].is_same(toy.parameter[flat.given(p)]));
      const auto holds = [&](const auto& stretch) {
        return stretch.range.begin <= where.begin && where.end <= stretch.range.end &&
               stretch.group == groups[flat.given(p)];
      };
      EXPECT_TRUE(where.size() == 0 || std::any_of(flat.stretches().begin(), flat.stretches().end(), holds));
    }
    EXPECT_EQ(given.size(), sizes.size());
    expect_cover(flat.units(), flat.numel(), kAlignment * parts);

    std::vector<int> owners(static_cast<std::size_t>(flat.numel()), 0);
    for (int rank = 0; rank < parts; ++rank) {
      const Shard shard(flat, rank);
      ASSERT_EQ(shard.numel() * parts, flat.numel());
      std::vector<Range> locals;
      for (const Shard::Segment& segment : shard.segments()) {
        locals.push_back(segment.local);
        EXPECT_EQ(segment.local.size(), segment.flat.size());
        EXPECT_TRUE(std::any_of(flat.stretches().begin(), flat.stretches().end(), [&](const auto& stretch) {
          return stretch.group == segment.group && stretch.range.begin <= segment.flat.begin &&
                 segment.flat.end <= stretch.range.end;
        }));
        for (std::int64_t e = segment.flat.begin; e < segment.flat.end; ++e) ++owners[static_cast<std::size_t>(e)];
      }
      expect_cover(locals, shard.numel(), kAlignment);
      for (const int count : {1, 2, 5, 12}) {
        const auto fragments = shard.fragments(count);
        EXPECT_EQ(fragments.size(), static_cast<std::size_t>(count));
        expect_cover(fragments, shard.numel(), kAlignment);
      }
    }
    EXPECT_TRUE(std::all_of(owners.begin(), owners.end(), [](int n) { return n == 1; }));
  }
}

TEST(Shard, ReadsAndWritesWhatItOwns) {
  Toy toy({100, 33, 500});
  const FlatParameters flat(as_parameters(toy.parameter), {.parts = 3, .unit_elements = 120});
  ASSERT_GT(flat.units().size(), 1U);
  const at::Tensor buffer = at::arange(flat.numel(), at::kFloat);
  const at::Tensor copy = at::zeros_like(buffer);
  for (int rank = 0; rank < 3; ++rank) {
    const Shard shard(flat, rank);
    for (const Range& range : shard.fragments(5)) shard.write_to(copy, shard.copy_of(buffer, range), range);
  }
  EXPECT_TRUE(copy.equal(buffer));
}

}  // namespace
}  // namespace co2
