#include "io/image_file.hpp"

#include <fmt/format.h>
#include <png.h>
#include <zlib.h>

#include <algorithm>
#include <string_view>

#include "base/error.hpp"
#include "base/quantize.hpp"
#include "io/atomic_file.hpp"
#include "io/font5x7.hpp"

namespace spotlight {
namespace {

constexpr std::size_t kSignatureBytes = 8;
constexpr std::size_t kChunkFrame = 12;                      // length, type, CRC around a chunk's data
constexpr std::size_t kHeaderChunkBytes = kChunkFrame + 13;  // IHDR, always first
constexpr std::string_view kTextFrame{"\0\0\0\0\0", 5};      // after the keyword: NUL, not compressed, no language
constexpr int kGap = 4;                                      // pixels between the cells of a sheet
constexpr int kCharWidth = kGlyphWidth + 1;
constexpr int kLineHeight = kGlyphHeight + 2;
constexpr float kPaper = 1.0f;
constexpr float kInk = 0.1f;

std::string BigEndian(std::uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16), static_cast<char>(value >> 8),
          static_cast<char>(value)};
}

std::uint32_t FromBigEndian(const char* bytes) {
  std::uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

std::string TextChunk(const std::string& keyword, const std::string& text) {
  SPOTLIGHT_REQUIRE(!keyword.empty() && keyword.size() < 80, "a PNG keyword has 1 to 79 letters: " + keyword);
  const std::string body = "iTXt" + keyword + std::string(kTextFrame) + text;
  const auto crc = crc32_z(0, reinterpret_cast<const Bytef*>(body.data()), body.size());
  return BigEndian(static_cast<std::uint32_t>(body.size() - 4)) + body + BigEndian(static_cast<std::uint32_t>(crc));
}

// Breaks at spaces, or within a word that is longer than a line.
std::vector<std::string> Wrapped(const std::string& caption, std::size_t width) {
  std::vector<std::string> lines;
  std::string rest = caption;
  while (rest.size() > width) {
    std::size_t cut = rest.rfind(' ', width);
    const bool at_space = cut != std::string::npos && cut > 0;
    if (!at_space) cut = width;
    lines.push_back(rest.substr(0, cut));
    rest.erase(0, at_space ? cut + 1 : cut);
  }
  lines.push_back(rest);
  return lines;
}

void SetPixel(Image& image, int y, int x, const float* rgb) {
  std::copy(rgb, rgb + 3, image.rgb.begin() + 3 * (static_cast<std::ptrdiff_t>(y) * image.width + x));
}

void DrawText(Image& image, int top, int left, const std::string& text) {
  const float ink[3] = {kInk, kInk, kInk};
  for (const char c : text) {
    // The font fits descenders into its seven rows; one row lower, these letters stand on the line with the others.
    const int drop = std::string_view("gpqy").find(c) != std::string_view::npos ? 1 : 0;
    const auto& glyph = kFont5x7[static_cast<std::size_t>(c >= ' ' && c <= '~' ? c - ' ' : '?' - ' ')];
    for (int y = 0; y < kGlyphHeight; ++y) {
      for (int x = 0; x < kGlyphWidth; ++x) {
        if ((glyph[y] >> (kGlyphWidth - 1 - x) & 1) != 0) SetPixel(image, top + drop + y, left + x, ink);
      }
    }
    left += kCharWidth;
  }
}

void DrawMagnified(Image& sheet, int top, int left, const Image& picture, int scale) {
  for (int y = 0; y < picture.height * scale; ++y) {
    for (int x = 0; x < picture.width * scale; ++x) {
      const std::size_t from = std::size_t{3} * ((y / scale) * picture.width + x / scale);
      SetPixel(sheet, top + y, left + x, &picture.rgb[from]);
    }
  }
}

}  // namespace

void WritePng(const std::string& path, const Image& image, const std::map<std::string, std::string>& text_chunks) {
  SPOTLIGHT_REQUIRE(image.width > 0 && image.height > 0, "an empty image for " + path);
  const std::vector<std::uint8_t> pixels = Quantize(image);
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  png.width = static_cast<png_uint_32>(image.width);
  png.height = static_cast<png_uint_32>(image.height);
  png.format = PNG_FORMAT_RGB;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(png);
  std::string bytes(size, '\0');
  if (png_image_write_to_memory(&png, bytes.data(), &size, 0, pixels.data(), 0, nullptr) == 0) {
    throw FileError(fmt::format("{}: cannot encode: {}", path, png.message));
  }
  bytes.resize(size);
  std::string text;
  for (const auto& [keyword, value] : text_chunks) text += TextChunk(keyword, value);
  bytes.insert(kSignatureBytes + kHeaderChunkBytes, text);
  WriteFileAtomically(path, bytes);
}

Image ReadPng(const std::string& path) {
  const std::string bytes = ReadWholeFile(path);
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  if (png_image_begin_read_from_memory(&png, bytes.data(), bytes.size()) == 0) {
    throw FileError(fmt::format("{}: not a PNG image: {}", path, png.message));
  }
  png.format = PNG_FORMAT_RGB;
  std::vector<std::uint8_t> pixels(PNG_IMAGE_SIZE(png));
  if (png_image_finish_read(&png, nullptr, pixels.data(), 0, nullptr) == 0) {
    throw FileError(fmt::format("{}: damaged PNG image: {}", path, png.message));
  }
  Image image{static_cast<int>(png.height), static_cast<int>(png.width), {}};
  for (const std::uint8_t pixel : pixels) image.rgb.push_back(static_cast<float>(pixel) / 255.0f);
  return image;
}

std::map<std::string, std::string> ReadPngText(const std::string& path) {
  const std::string bytes = ReadWholeFile(path);
  std::map<std::string, std::string> chunks;
  for (std::size_t at = kSignatureBytes; at + kChunkFrame <= bytes.size();) {
    const std::size_t size = FromBigEndian(bytes.data() + at);
    if (size > bytes.size() - at - kChunkFrame) throw FileError(path + ": truncated PNG image");
    const std::string body = bytes.substr(at + 8, size);
    if (bytes.compare(at + 4, 4, "iTXt") == 0) {
      const std::size_t frame = body.find('\0');
      if (frame != std::string::npos && body.compare(frame, kTextFrame.size(), kTextFrame) == 0) {
        chunks[body.substr(0, frame)] = body.substr(frame + kTextFrame.size());
      }
    }
    at += kChunkFrame + size;
  }
  return chunks;
}

void WriteGrid(const std::string& path, const std::vector<Image>& images, const std::vector<std::string>& captions,
               int columns, int scale) {
  SPOTLIGHT_REQUIRE(!images.empty() && captions.size() == images.size(), "one caption an image for " + path);
  SPOTLIGHT_REQUIRE(columns >= 1 && scale >= 1, "columns and scale are at least 1");
  int cell_width = kCharWidth;
  int cell_height = 0;
  for (const Image& image : images) {
    cell_width = std::max(cell_width, image.width * scale);
    cell_height = std::max(cell_height, image.height * scale);
  }
  std::vector<std::vector<std::string>> lines;
  std::size_t most_lines = 1;
  std::string all_captions;
  for (const std::string& caption : captions) {
    lines.push_back(Wrapped(caption, static_cast<std::size_t>(cell_width / kCharWidth)));
    most_lines = std::max(most_lines, lines.back().size());
    all_captions += caption + "\n";
  }
  const int pitch_x = cell_width + kGap;
  const int pitch_y = cell_height + static_cast<int>(most_lines) * kLineHeight + 2 * kGap;
  const int count = static_cast<int>(images.size());
  Image sheet;
  sheet.width = std::min(columns, count) * pitch_x + kGap;
  sheet.height = (count + columns - 1) / columns * pitch_y + kGap;
  sheet.rgb.assign(std::size_t{3} * sheet.width * sheet.height, kPaper);
  for (int i = 0; i < count; ++i) {
    const int top = kGap + i / columns * pitch_y;
    const int left = kGap + i % columns * pitch_x;
    DrawMagnified(sheet, top, left, images[i], scale);
    for (std::size_t line = 0; line < lines[i].size(); ++line) {
      DrawText(sheet, top + cell_height + kGap / 2 + static_cast<int>(line) * kLineHeight, left, lines[i][line]);
    }
  }
  WritePng(path, sheet, {{"captions", all_captions}});
}

int GridScale(int width) { return width >= 256 ? 1 : 3; }

}  // namespace spotlight
