#include "io/image_file.hpp"

#include "base/error.hpp"
#include "full_disk.hpp"
#include "io/atomic_file.hpp"
#include "io/provenance.hpp"
#include "io_test.hpp"

namespace spotlight {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

Image Filled(int height, int width, float r, float g, float b) {
  Image image{height, width, {}};
  for (int i = 0; i < height * width; ++i) image.rgb.insert(image.rgb.end(), {r, g, b});
  return image;
}

std::vector<float> Pixel(const Image& image, int y, int x) {
  const auto first = image.rgb.begin() + 3 * (y * image.width + x);
  return {first, first + 3};
}

TEST_F(IoTest, PngKeepsPixelsAndText) {
  const Image image{2, 3, {0, 1, 0.5f, 2, -1, 0.2f, 0, 0, 0, 1, 1, 1, 0.1f, 0.2f, 0.3f, 0.4f, 0.5f, 0.6f}};
  const std::map<std::string, std::string> text = {{"prompt", "ein Bär"}, {"seed", "12"}, {"empty", ""}};
  WritePng(Path("x.png"), image, text);
  const Image read = ReadPng(Path("x.png"));
  EXPECT_EQ(read.height, 2);
  EXPECT_EQ(read.width, 3);
  ASSERT_EQ(read.rgb.size(), image.rgb.size());
  for (std::size_t i = 0; i < image.rgb.size(); ++i) {
    EXPECT_NEAR(read.rgb[i], std::min(1.0f, std::max(0.0f, image.rgb[i])), 0.5001f / 255);
  }
  EXPECT_EQ(ReadPngText(Path("x.png")), text);
  EXPECT_THAT(Listing(), ElementsAre("x.png"));

  const std::string text_file = WriteFile("y.png", "no picture");
  ExpectError<FileError>([&] { ReadPng(text_file); }, {text_file, "not a PNG image"});
  std::filesystem::resize_file(Path("x.png"), 60);
  ExpectError<FileError>([&] { ReadPng(Path("x.png")); }, {"x.png", "PNG image"});
}

TEST_F(IoTest, PngRoundsHalvesToEven) {
  // 255 x is exactly 0.5, 1.5, 2.5, 127.5, 253.5, 254.5.
  std::vector<float> halves;
  for (const float half : {0.5f, 1.5f, 2.5f, 127.5f, 253.5f, 254.5f}) {
    halves.push_back(half / 255.0f);
    ASSERT_EQ(255.0f * halves.back(), half);
  }
  WritePng(Path("x.png"), {1, 2, halves}, {});
  std::vector<float> bytes;
  for (const float value : ReadPng(Path("x.png")).rgb) bytes.push_back(std::round(255.0f * value));
  EXPECT_THAT(bytes, ElementsAre(0, 2, 2, 128, 254, 254));
}

TEST_F(IoTest, GridPlacesPicturesAndCaptions) {
  const std::vector<Image> images = {Filled(8, 32, 1, 0, 0), Filled(8, 32, 0, 1, 0), Filled(8, 32, 0, 0, 1)};
  WriteGrid(Path("grid.png"), images, {"I", "a caption of several words", ""}, 2, 2);
  const Image grid = ReadPng(Path("grid.png"));
  // cells 64 wide, 4 apart; 3 caption lines ("a caption", "of several", "words") of 9 pixels
  EXPECT_EQ(grid.width, 4 + 2 * 68);
  EXPECT_EQ(grid.height, 4 + 2 * (16 + 3 * 9 + 8));
  EXPECT_THAT(Pixel(grid, 4, 4), ElementsAre(1, 0, 0));
  EXPECT_THAT(Pixel(grid, 19, 67), ElementsAre(1, 0, 0));
  EXPECT_THAT(Pixel(grid, 4, 72), ElementsAre(0, 1, 0));
  EXPECT_THAT(Pixel(grid, 4 + 51, 4), ElementsAre(0, 0, 1));
  EXPECT_THAT(Pixel(grid, 4, 3), ElementsAre(1, 1, 1));
  // "I" at (22, 4): the serif's middle three pixels are ink, its corners are paper
  EXPECT_LT(Pixel(grid, 22, 6)[0], 0.2f);
  EXPECT_LT(Pixel(grid, 25, 6)[0], 0.2f);
  EXPECT_THAT(Pixel(grid, 22, 4), ElementsAre(1, 1, 1));
  EXPECT_EQ(ReadPngText(Path("grid.png")).at("captions"), "I\na caption of several words\n\n");
}

TEST_F(IoTest, OnlySmallPicturesAreMagnified) {
  EXPECT_EQ(GridScale(64), 3);
  EXPECT_EQ(GridScale(1280), 1);
}

TEST_F(IoTest, AtomicWriteLeavesTheOldFileOnFailure) {
  const std::string path = Path("x");
  WriteFileAtomically(path, "old");
  const std::string message = FileErrorOnFullDisk(1000, [&] { WriteFileAtomically(path, std::string(5000, 'n')); });
  EXPECT_THAT(message, HasSubstr(path + ": cannot write"));
  EXPECT_EQ(ReadFile(path), "old");
  EXPECT_THAT(Listing(), ElementsAre("x"));
  WriteFileAtomically(path, "new");
  EXPECT_EQ(ReadFile(path), "new");
  { AtomicFile(path).Write("never committed"); }
  EXPECT_EQ(ReadFile(path), "new");
  EXPECT_THAT(Listing(), ElementsAre("x"));
  ExpectError<FileError>([&] { WriteFileAtomically(Path("no/x"), ""); }, {"no/x", "cannot write", "No such file"});
  ExpectError<FileError>([&] { ReadWholeFile(Path("none")); }, {"none", "cannot read"});
  ExpectError<FileError>([&] { ReadWholeFile(folder_.string()); }, {folder_.string(), "Is a directory"});
}

TEST_F(IoTest, ProvenanceNamesTheBuild) {
  const auto provenance = Provenance();
  EXPECT_EQ(provenance.at("software"), "spotlight");
  EXPECT_THAT(provenance.at("softwareVersion"), MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+"));
  EXPECT_THAT(provenance.at("date"), MatchesRegex("20..-..-..T..:..:..[+-]...."));
  EXPECT_THAT(provenance.at("git_sha"), MatchesRegex("[0-9a-f]{40}|unknown"));
  EXPECT_THAT(provenance.at("git_dirty"), MatchesRegex("yes|no|unknown"));
  EXPECT_THAT(provenance.at("softwareDependencies"), HasSubstr("HDF5 1."));
  EXPECT_NE(provenance.at("machine"), "");
}

}  // namespace
}  // namespace spotlight
