// The tiny-shapes world: a procedural renderer that draws a correct image for a prompt.
//
// Images are 64x64 RGB in [0, 1]: a dark background and one 14x14 sprite per 16x16 cell (a margin of 1 pixel), so that
// one sprite falls into one token of a DiT with an 8x VAE and 2x2 packing. Sprites are coverage masks by 4x4
// supersampling: pixel = background (1 - m) + color m. Used to pre-train the tiny model and to test the detector.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/image.hpp"
#include "base/prompt.hpp"

namespace spotlight {

inline constexpr int kWorldSide = 64;   // image, pixels
inline constexpr int kCellSide = 16;    // pixels
inline constexpr int kSpriteSide = 14;  // pixels
inline constexpr int kNumShapes = 6;
inline constexpr int kNumColors = 6;
inline constexpr float kBackground = 0.06f;  // of all three channels

// circle, square, triangle, cross, ring, heart
const std::vector<std::string>& ShapeNames();

// red, green, blue, yellow, purple, white: RGB in kPalette
const std::vector<std::string>& ColorNames();
inline constexpr std::array<std::array<float, 3>, kNumColors> kPalette = {{{0.90f, 0.10f, 0.10f},
                                                                           {0.10f, 0.80f, 0.15f},
                                                                           {0.15f, 0.25f, 0.95f},
                                                                           {0.95f, 0.85f, 0.10f},
                                                                           {0.70f, 0.15f, 0.85f},
                                                                           {0.95f, 0.95f, 0.95f}}};

// Coverage [14, 14] in [0, 1] of shape number `shape` (ShapeNames' order); sixteenths, so exact.
using Sprite = std::array<float, kSpriteSide * kSpriteSide>;
const Sprite& ShapeSprite(int shape);

// One image that satisfies `prompt`: all objects of its include clauses (at most 16) in different cells, colours drawn
// where the prompt leaves them open, each relation the only one that holds between its objects. A pure function of the
// prompt and `key`, the same on every machine. Throws UserError for a class or colour that the world does not have, for
// more objects than cells, and for relations that no placement was found for.
Image RenderPrompt(const Prompt& prompt, std::uint64_t key);

}  // namespace spotlight
