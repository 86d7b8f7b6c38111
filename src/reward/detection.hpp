// What a detector reports about one object of an image, and where two objects stand to each other.
//
// Boxes are in pixels, x to the right, y down, with an exclusive end.
#pragma once

#include <array>
#include <string>
#include <vector>

namespace spotlight {

struct Box {
  int x0 = 0;
  int y0 = 0;
  int x1 = 0;
  int y1 = 0;
};

// Share of an object's pixels that are nearest to `color`.
struct ColorShare {
  std::string color;
  double share = 0;  // 0..1
};

struct Detection {
  std::string object_class;  // empty: an object, but none that is known
  std::string color;         // empty: no colour has a clear majority
  Box box;
  int area = 0;           // pixels
  double confidence = 0;  // 0..1, of object_class
  std::vector<ColorShare> color_shares;
};

// Share of `color` in the object, 0 if the detector does not know that colour.
double ShareOf(const Detection& detection, const std::string& color);

// The four relations of GenEval's prompts.
inline const std::array<std::string, 4> kRelations = {"left of", "right of", "above", "below"};

// Whether box `a` stands in `relation` to box `b`, by GenEval's rule (github.com/djghosh13/geneval): each component of
// the offset of the centres is moved towards 0 by a tenth of the two extents together and divided by the length of the
// whole offset; a relation holds when its component exceeds 0.5. On a diagonal two relations can hold, near each other
// none. Throws InternalError for a relation that is not in kRelations.
bool RelationHolds(const std::string& relation, const Box& a, const Box& b);

}  // namespace spotlight
