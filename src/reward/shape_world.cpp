#include "reward/shape_world.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/error.hpp"
#include "base/random.hpp"
#include "reward/detection.hpp"

namespace spotlight {
namespace {

constexpr int kCellsPerRow = kWorldSide / kCellSide;
constexpr int kNumCells = kCellsPerRow * kCellsPerRow;
constexpr int kSupersampling = 4;  // per axis
constexpr int kMaxPlacements = 10000;

bool InCircle(double u, double v) { return u * u + v * v <= 1; }
bool InSquare(double u, double v) { return std::abs(u) <= 0.92 && std::abs(v) <= 0.92; }
bool InTriangle(double u, double v) { return v <= 0.92 && std::abs(u) <= (v + 1) / 1.92; }
bool InCross(double u, double v) {
  return (std::abs(u) <= 0.34 && std::abs(v) <= 1) || (std::abs(v) <= 0.34 && std::abs(u) <= 1);
}
bool InRing(double u, double v) { return InCircle(u, v) && u * u + v * v >= 0.36; }
bool InHeart(double u, double v) {
  const double a = std::abs(u);
  const bool lobes = (a - 0.48) * (a - 0.48) + (v + 0.42) * (v + 0.42) <= 0.53 * 0.53;
  const bool tip = v >= -0.42 && a <= 1 - (v + 0.42) / 1.42;
  return lobes || tip;
}

// Whether the point (u right, v down), both in [-1, 1], is in the shape.
using ShapeTest = bool (*)(double u, double v);

struct Shape {
  const char* name;
  ShapeTest contains;
};
constexpr std::array<Shape, kNumShapes> kShapes = {{{"circle", InCircle},
                                                    {"square", InSquare},
                                                    {"triangle", InTriangle},
                                                    {"cross", InCross},
                                                    {"ring", InRing},
                                                    {"heart", InHeart}}};

Sprite MakeSprite(ShapeTest contains) {
  constexpr int kFine = kSpriteSide * kSupersampling;
  const auto coordinate = [](int i) { return (i + 0.5) / kFine * 2 - 1; };
  Sprite sprite{};
  for (int y = 0; y < kFine; ++y) {
    for (int x = 0; x < kFine; ++x) {
      if (!contains(coordinate(x), coordinate(y))) continue;
      sprite[(y / kSupersampling) * kSpriteSide + x / kSupersampling] += 1.0f / (kSupersampling * kSupersampling);
    }
  }
  return sprite;
}

// Draws from the stream `key`, one element after the other.
class Draws {
 public:
  explicit Draws(std::uint64_t key) : key_(key) {}
  int Below(int bound) { return static_cast<int>(UniformInt(key_, index_++, bound)); }

 private:
  std::uint64_t key_;
  std::uint64_t index_ = 0;
};

int IndexOf(const std::string& name, const std::vector<std::string>& names, const char* what) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found != names.end()) return static_cast<int>(found - names.begin());
  std::string list;
  for (const std::string& known : names) list += (list.empty() ? "" : ", ") + known;
  throw UserError("the tiny-shapes renderer cannot draw the " + std::string(what) + " \"" + name + "\"; it has " +
                  list);
}

struct Object {
  int shape = 0;
  int color = 0;
  int clause = 0;  // of the prompt's include list
};

Box CellBox(int cell) {
  constexpr int kMargin = (kCellSide - kSpriteSide) / 2;
  const int x = kCellSide * (cell % kCellsPerRow) + kMargin;
  const int y = kCellSide * (cell / kCellsPerRow) + kMargin;
  return {x, y, x + kSpriteSide, y + kSpriteSide};
}

// Whether every relation of the prompt, and no other one, holds between the objects of its two clauses.
bool RelationsHold(const Prompt& prompt, const std::vector<Object>& objects, const std::vector<Box>& boxes) {
  for (std::size_t i = 0; i < objects.size(); ++i) {
    const Clause& clause = prompt.include[objects[i].clause];
    if (clause.relation.empty()) continue;
    for (std::size_t j = 0; j < objects.size(); ++j) {
      if (objects[j].clause != clause.relation_target) continue;
      for (const std::string& relation : kRelations) {
        if (RelationHolds(relation, boxes[i], boxes[j]) != (relation == clause.relation)) return false;
      }
    }
  }
  return true;
}

// Boxes for the objects, in different cells drawn at random.
std::vector<Box> Place(const Prompt& prompt, const std::vector<Object>& objects, Draws& draws) {
  std::array<int, kNumCells> cells{};
  std::iota(cells.begin(), cells.end(), 0);
  for (int attempt = 0; attempt < kMaxPlacements; ++attempt) {
    std::vector<Box> boxes;
    for (int i = 0; i < static_cast<int>(objects.size()); ++i) {
      std::swap(cells[i], cells[i + draws.Below(kNumCells - i)]);
      boxes.push_back(CellBox(cells[i]));
    }
    if (RelationsHold(prompt, objects, boxes)) return boxes;
  }
  throw UserError("no placement of the objects was found that fits \"" + prompt.text +
                  "\"; ask for fewer objects or relations");
}

}  // namespace

const std::vector<std::string>& ShapeNames() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    list.reserve(kNumShapes);
    for (const Shape& shape : kShapes) list.emplace_back(shape.name);
    return list;
  }();
  return names;
}

const std::vector<std::string>& ColorNames() {
  static const std::vector<std::string> names = {"red", "green", "blue", "yellow", "purple", "white"};
  return names;
}

const Sprite& ShapeSprite(int shape) {
  static const std::array<Sprite, kNumShapes> sprites = [] {
    std::array<Sprite, kNumShapes> all{};
    for (int i = 0; i < kNumShapes; ++i) all[i] = MakeSprite(kShapes[i].contains);
    return all;
  }();
  return sprites.at(shape);
}

Image RenderPrompt(const Prompt& prompt, std::uint64_t key) {
  Draws draws(key);
  std::vector<Object> objects;
  for (int i = 0; i < static_cast<int>(prompt.include.size()); ++i) {
    const Clause& clause = prompt.include[i];
    const int shape = IndexOf(clause.object_class, ShapeNames(), "shape");
    if (clause.count > kNumCells - static_cast<int>(objects.size())) {
      throw UserError("\"" + prompt.text + "\" asks for more than the " + std::to_string(kNumCells) +
                      " objects that fit into an image of tiny shapes");
    }
    for (int n = 0; n < clause.count; ++n) {
      const int color = clause.color.empty() ? draws.Below(kNumColors) : IndexOf(clause.color, ColorNames(), "colour");
      objects.push_back({shape, color, i});
    }
  }
  const std::vector<Box> boxes = Place(prompt, objects, draws);

  Image image{kWorldSide, kWorldSide, std::vector<float>(kWorldSide * kWorldSide * 3, kBackground)};
  for (std::size_t i = 0; i < objects.size(); ++i) {
    const Sprite& sprite = ShapeSprite(objects[i].shape);
    const std::array<float, 3>& color = kPalette[objects[i].color];
    for (int y = 0; y < kSpriteSide; ++y) {
      for (int x = 0; x < kSpriteSide; ++x) {
        const float m = sprite[y * kSpriteSide + x];
        float* pixel = &image.rgb[((boxes[i].y0 + y) * kWorldSide + boxes[i].x0 + x) * 3];
        for (int c = 0; c < 3; ++c) pixel[c] = kBackground * (1 - m) + color[c] * m;
      }
    }
  }
  return image;
}

}  // namespace spotlight
