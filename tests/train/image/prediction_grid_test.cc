#include "train/image/prediction_grid.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "support/temporary.h"
#include "train/image/confusion.h"
#include "train/image/png_file.h"

namespace co2::train {
namespace {

/// How many pixels have that colour.
std::int64_t count(const at::Tensor& picture, int red, int green, int blue) {
  return (picture == torch::tensor({red, green, blue}, torch::kByte)).all(2).sum().item<std::int64_t>();
}

at::Tensor patch(int channels, int value) { return torch::full({channels, 8, 8}, value, torch::kByte); }

TEST(PredictionGrid, ShowsEveryInputOnce) {
  const auto gray = prediction_grid({{patch(1, 77), "cat", "cat"}, {patch(1, 99), "dog", "cat"}}, 2);
  constexpr std::int64_t kShown = (8 * 14) * (8 * 14);  // every pixel as 14 by 14
  EXPECT_EQ(count(gray, 77, 77, 77), kShown);
  EXPECT_EQ(count(gray, 99, 99, 99), kShown);
  auto red = patch(3, 0);
  red[0].fill_(201);
  EXPECT_EQ(count(prediction_grid({{red, "a", "b"}}, 3), 201, 0, 0), kShown);
}

TEST(PredictionGrid, TellsRightFromWrongByColour) {
  const auto right = prediction_grid({{patch(1, 77), "cat", "cat"}}, 1);
  const auto wrong = prediction_grid({{patch(1, 77), "cat", "dog"}}, 1);
  EXPECT_GT(count(right, 0, 130, 60), 0);
  EXPECT_EQ(count(right, 200, 30, 30), 0);
  EXPECT_GT(count(wrong, 200, 30, 30), 0);
  EXPECT_EQ(count(wrong, 0, 130, 60), 0);
  // The truth itself is in ink: as many dots of it, whatever the guess.
  EXPECT_EQ(count(right, 40, 40, 40), count(wrong, 40, 40, 40));
  EXPECT_NE(count(prediction_grid({{patch(1, 77), "i", "i"}}, 1), 40, 40, 40), count(right, 40, 40, 40));
}

TEST(PredictionGrid, TakesAnyNamesAndSizes) {
  const std::string name = "a name that is much too long, \xc3\xa4nd not all of it is ASCII";
  const auto large = torch::zeros({1, 300, 200}, torch::kByte);
  EXPECT_GT(prediction_grid({{large, name, ""}, {large, "", name}, {large, "x", "y"}}, 2).numel(), 0);
}

TEST(PredictionGrid, IsAPngThatIsReadAsItWasWritten) {
  const test::TestFolder folder;
  const auto picture = prediction_grid({{patch(3, 50), "cat", "cat"}}, 1);
  write_png(folder / "grid.png", picture);
  EXPECT_TRUE(torch::equal(read_png(folder / "grid.png"), picture));
}

TEST(Confusion, TellsWhatWasRecognisedAndWhatFor) {
  Confusion confusion({"cat", "tiger", "dog"});
  for (int i = 0; i < 3; ++i) confusion.add(0, 0);
  confusion.add(0, 1);
  confusion.add(1, 2);
  confusion.add(1, 0);
  confusion.add(1, 0);
  EXPECT_EQ(confusion.right(), 3);
  EXPECT_EQ(confusion.table(), "  cat    0.750 of 4, 1 taken for tiger\n  tiger  0.000 of 3, 2 taken for cat");
}

TEST(Confusion, OfManyClassesShowsTheWorst) {
  std::vector<std::string> names;
  for (int i = 0; i < 30; ++i) names.push_back("class " + std::to_string(i));
  Confusion confusion(names);
  for (int i = 0; i < 30; ++i) confusion.add(i, i < 29 ? i : 3);
  const std::string table = confusion.table();
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 20);
  EXPECT_NE(table.find("class 29  0.000 of 1, 1 taken for class 3"), std::string::npos) << table;
}

}  // namespace
}  // namespace co2::train
