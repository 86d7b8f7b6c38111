#include "reward/shape_detector.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/error.hpp"
#include "reward/shape_world.hpp"

namespace spotlight {
namespace {

constexpr int kTemplateSide = 12;
constexpr int kTemplateSize = kTemplateSide * kTemplateSide;
constexpr float kForeground = 0.30f;
constexpr int kMinArea = 40;
constexpr int kMinSide = 8;
constexpr float kMinIou = 0.70f;
constexpr double kMaxAspect = 1.6;
constexpr double kMinPurity = 0.60;
constexpr double kFullCoverage = 0.9;  // quantile of the distances

using Coverage = std::array<float, kTemplateSize>;

// One connected component.
struct Component {
  Box box;
  std::vector<int> pixels;  // indices into the image
};

// Largest channel distance from the background, [h * w]; NaN for a pixel with a NaN, which is above no threshold.
std::vector<float> Distances(const std::vector<float>& rgb) {
  std::vector<float> distances(rgb.size() / 3);
  for (std::size_t i = 0; i < distances.size(); ++i) {
    const float r = std::abs(rgb[3 * i] - kBackground);
    const float g = std::abs(rgb[3 * i + 1] - kBackground);
    const float b = std::abs(rgb[3 * i + 2] - kBackground);
    const float largest = r > g ? (r > b ? r : b) : (g > b ? g : b);
    distances[i] = largest + 0 * (r + g + b);  // the second summand is 0 or passes a NaN on
  }
  return distances;
}

// Takes the component of pixel `start` out of `foreground`.
Component TakeComponent(int start, int height, int width, std::vector<char>& foreground) {
  Component component{{width, height, 0, 0}, {start}};
  foreground[start] = 0;
  for (std::size_t next = 0; next < component.pixels.size(); ++next) {
    const int pixel = component.pixels[next];
    const int y = pixel / width;
    const int x = pixel % width;
    Box& box = component.box;
    box = {std::min(box.x0, x), std::min(box.y0, y), std::max(box.x1, x + 1), std::max(box.y1, y + 1)};
    const auto visit = [&](bool inside, int neighbour) {
      if (!inside || !foreground[neighbour]) return;
      foreground[neighbour] = 0;
      component.pixels.push_back(neighbour);
    };
    visit(y > 0, pixel - width);
    visit(x > 0, pixel - 1);
    visit(x + 1 < width, pixel + 1);
    visit(y + 1 < height, pixel + width);
  }
  return component;
}

// Bilinear sample positions along an axis of `length` pixels.
struct Samples {
  std::array<int, kTemplateSide> low, high;
  std::array<float, kTemplateSide> high_weight;

  explicit Samples(int length) : low(), high(), high_weight() {
    for (int i = 0; i < kTemplateSide; ++i) {
      const double position = (i + 0.5) * length / kTemplateSide - 0.5;
      low[i] = std::clamp(static_cast<int>(std::floor(position)), 0, length - 1);
      high[i] = std::min(low[i] + 1, length - 1);
      high_weight[i] = static_cast<float>(std::clamp(position - low[i], 0.0, 1.0));
    }
  }
};

// Step 3 of the header's list.
Coverage CoverageOf(const Component& component, const std::vector<float>& distances, int image_width) {
  std::vector<float> sorted;
  sorted.reserve(component.pixels.size());
  for (const int pixel : component.pixels) sorted.push_back(distances[pixel]);
  const auto quantile = sorted.begin() + static_cast<int>(kFullCoverage * static_cast<double>(sorted.size() - 1));
  std::nth_element(sorted.begin(), quantile, sorted.end());
  const float full = *quantile;

  const Box& box = component.box;
  const int width = box.x1 - box.x0;
  const int height = box.y1 - box.y0;
  std::vector<float> crop(static_cast<std::size_t>(width) * height, 0.0f);
  for (const int pixel : component.pixels) {
    const int y = pixel / image_width - box.y0;
    const int x = pixel % image_width - box.x0;
    crop[y * width + x] = std::min(distances[pixel] / full, 1.0f);
  }

  const Samples rows(height);
  const Samples columns(width);
  std::vector<float> row(width);
  Coverage coverage{};
  for (int i = 0; i < kTemplateSide; ++i) {
    const float* low = &crop[rows.low[i] * width];
    const float* high = &crop[rows.high[i] * width];
    const float fy = rows.high_weight[i];
    for (int x = 0; x < width; ++x) row[x] = low[x] * (1 - fy) + high[x] * fy;
    for (int j = 0; j < kTemplateSide; ++j) {
      const float fx = columns.high_weight[j];
      coverage[i * kTemplateSide + j] = row[columns.low[j]] * (1 - fx) + row[columns.high[j]] * fx;
    }
  }
  return coverage;
}

// The sum of a coverage in NumPy's order (two halves, eight lanes each, lanes in pairs), so that scores compare bit for
// bit with the references that the shipped model was measured with.
float Sum(const Coverage& values) {
  constexpr int kLanes = 8;
  constexpr int kHalf = kTemplateSize / 2;
  static_assert(kHalf % kLanes == 0);
  float sum = 0;
  for (int begin = 0; begin < kTemplateSize; begin += kHalf) {
    float r[kLanes] = {};
    for (int i = begin; i < begin + kHalf; i += kLanes) {
      for (int lane = 0; lane < kLanes; ++lane) r[lane] += values[i + lane];
    }
    sum += ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
  }
  return sum;
}

// Sum min / sum max.
float SoftIou(const float* a, const Coverage& b) {
  Coverage smaller;
  Coverage larger;
  for (int i = 0; i < kTemplateSize; ++i) {  // apart from the sums: so the compiler vectorises both
    smaller[i] = a[i] < b[i] ? a[i] : b[i];
    larger[i] = a[i] < b[i] ? b[i] : a[i];
  }
  return Sum(smaller) / Sum(larger);
}

int NearestColor(const float* pixel) {
  int nearest = 0;
  float least = 0;
  for (int color = 0; color < kNumColors; ++color) {
    float distance = 0;
    for (int c = 0; c < 3; ++c) distance += (pixel[c] - kPalette[color][c]) * (pixel[c] - kPalette[color][c]);
    if (color == 0 || distance < least) {
      nearest = color;
      least = distance;
    }
  }
  return nearest;
}

// Step 5: fills `color` and `color_shares`.
void FindColor(const Component& component, const std::vector<float>& rgb, Detection& detection) {
  std::array<int, kNumColors> histogram{};
  for (const int pixel : component.pixels) ++histogram[NearestColor(&rgb[3 * static_cast<std::size_t>(pixel)])];
  const double area = static_cast<double>(component.pixels.size());
  for (int color = 0; color < kNumColors; ++color) {
    detection.color_shares.push_back({ColorNames()[color], histogram[color] / area});
  }
  const auto most = std::max_element(histogram.begin(), histogram.end());
  if (*most >= kMinPurity * area) detection.color = ColorNames()[most - histogram.begin()];
}

}  // namespace

ShapeDetector::ShapeDetector(const WeightMap& weights, const std::string& path) {
  const auto tensor = [&](const char* name) -> const HostTensor& {
    const auto found = weights.find(name);
    if (found != weights.end()) return found->second;
    throw UserError(path + ": no tensor \"" + name + "\"; reward/detector must name a detector.safetensors");
  };
  const HostTensor& templates = tensor("templates");
  const HostTensor& classes = tensor("class");
  const bool fits = templates.shape.size() == 2 && templates.shape[0] >= 1 && templates.shape[1] == kTemplateSize &&
                    classes.shape == Shape{templates.shape[0]};
  if (!fits) {
    throw UserError(path + ": \"templates\" has shape " + ToString(templates.shape) + " and \"class\" " +
                    ToString(classes.shape) + "; they must be [n, " + std::to_string(kTemplateSize) +
                    "] and [n], n >= 1");
  }
  for (const float value : templates.data) {
    if (value >= 0 && value <= 1) continue;
    throw UserError(path + ": \"templates\" holds " + std::to_string(value) + "; a coverage is in [0, 1]");
  }
  for (const float value : classes.data) {
    const int index = value >= 0 && value < kNumShapes ? static_cast<int>(value) : -1;
    if (index < 0 || static_cast<float>(index) != value) {
      throw UserError(path + ": \"class\" holds " + std::to_string(value) + "; it must be a whole number from 0 to " +
                      std::to_string(kNumShapes - 1));
    }
    template_classes_.push_back(index);
  }
  templates_ = templates.data;
}

std::vector<Detection> ShapeDetector::Detect(const Image& image) const {
  SPOTLIGHT_REQUIRE(image.height >= 0 && image.width >= 0 &&
                        image.rgb.size() == static_cast<std::size_t>(image.height) * image.width * 3,
                    "an image's values do not fit its size");
  std::vector<float> rgb = image.rgb;
  for (float& value : rgb) value = std::clamp(value, 0.0f, 1.0f);
  const std::vector<float> distances = Distances(rgb);
  std::vector<char> foreground(distances.size());
  for (std::size_t i = 0; i < distances.size(); ++i) foreground[i] = distances[i] > kForeground;

  std::vector<Detection> detections;
  for (int start = 0; start < static_cast<int>(foreground.size()); ++start) {
    if (!foreground[start]) continue;
    const Component component = TakeComponent(start, image.height, image.width, foreground);
    const int width = component.box.x1 - component.box.x0;
    const int height = component.box.y1 - component.box.y0;
    const int area = static_cast<int>(component.pixels.size());
    if (area < kMinArea || width < kMinSide || height < kMinSide) continue;

    const Coverage coverage = CoverageOf(component, distances, image.width);
    std::size_t best = 0;
    float best_iou = -1;
    for (std::size_t i = 0; i < template_classes_.size(); ++i) {
      const float iou = SoftIou(&templates_[i * kTemplateSize], coverage);
      if (iou <= best_iou) continue;
      best = i;
      best_iou = iou;
    }
    Detection detection;
    detection.box = component.box;
    detection.area = area;
    detection.confidence = best_iou;
    const double aspect = static_cast<double>(std::max(width, height)) / std::min(width, height);
    if (best_iou >= kMinIou && aspect <= kMaxAspect) detection.object_class = ShapeNames()[template_classes_[best]];
    FindColor(component, rgb, detection);
    detections.push_back(std::move(detection));
  }
  return detections;
}

}  // namespace spotlight
