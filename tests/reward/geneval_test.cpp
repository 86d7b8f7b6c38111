#include "reward/geneval.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "shapes_data.hpp"

namespace spotlight {
namespace {

// One object at column x of a row of 14x14 boxes; nine tenths of its pixels have the colour.
Detection At(const std::string& object_class, const std::string& color, int x, double confidence = 0.8) {
  Detection detection;
  detection.object_class = object_class;
  detection.color = color;
  detection.box = {20 * x, 0, 20 * x + 14, 14};
  detection.area = 150;
  detection.confidence = confidence;
  detection.color_shares = {{color, 0.9}};
  return detection;
}

Prompt Asking(const std::string& tag, std::vector<Clause> include, std::vector<Clause> exclude = {}) {
  Prompt prompt;
  prompt.text = "a photo";
  prompt.tag = tag;
  prompt.include = std::move(include);
  prompt.exclude = std::move(exclude);
  return prompt;
}

void ExpectScores(const Prompt& prompt, const std::vector<Detection>& detections, const GenevalScores& expected) {
  const GenevalScores scores = ScoreGeneval(prompt, detections);
  EXPECT_EQ(scores.strict, expected.strict);
  EXPECT_NEAR(scores.soft, expected.soft, 1e-12);
  EXPECT_NEAR(scores.dense, expected.dense, 1e-12);
  EXPECT_NEAR(scores.exact, expected.exact, 1e-12);
}

TEST(Geneval, SingleObject) {
  const Prompt prompt = Asking("single_object", {Wants("ring")});
  ExpectScores(prompt, {At("ring", "red", 0)}, {.strict = 1, .soft = 1, .dense = 0.8, .exact = 1});
  ExpectScores(prompt, {At("heart", "red", 0)}, {.strict = 0, .soft = 0, .dense = 0, .exact = 0});
  ExpectScores(prompt, {}, {.strict = 0, .soft = 0, .dense = 0, .exact = 0});
}

TEST(Geneval, ExtraObjectsCostOnlyTheExactScore) {
  const Prompt prompt = Asking("single_object", {Wants("ring")});
  ExpectScores(prompt, {At("ring", "red", 0, 0.7), At("ring", "red", 1, 0.9)},
               {.strict = 1, .soft = 1, .dense = 0.9, .exact = 0});
}

TEST(Geneval, CountingIsExact) {
  const Prompt prompt = Asking("counting", {Wants("ring", 3)});
  const Detection a = At("ring", "red", 0, 0.7);
  const Detection b = At("ring", "blue", 1, 0.9);
  const Detection c = At("ring", "red", 2, 0.8);
  const Detection other = At("heart", "red", 3);
  ExpectScores(prompt, {a, b, c, other}, {.strict = 1, .soft = 1, .dense = 0.8, .exact = 1});
  ExpectScores(prompt, {a, b}, {.strict = 0, .soft = 2. / 3, .dense = 2. / 3 * 0.8, .exact = 2. / 3});
  ExpectScores(prompt, {a, b, c, c}, {.strict = 0, .soft = 2. / 3, .dense = 2. / 3 * 0.8, .exact = 2. / 3});
  // Seven for three: 1 - 4/3 is clamped, never negative.
  ExpectScores(prompt, std::vector<Detection>(7, c), {.strict = 0, .soft = 0, .dense = 0, .exact = 0});
}

TEST(Geneval, CountsOutsideCountingAreLowerBounds) {
  const Prompt prompt = Asking("", {Wants("ring", 2)});
  const Detection ring = At("ring", "red", 0);
  ExpectScores(prompt, {ring}, {.strict = 0, .soft = 0.5, .dense = 0.4, .exact = 0.5});
  ExpectScores(prompt, {ring, ring, ring}, {.strict = 1, .soft = 1, .dense = 0.8, .exact = 0.5});
}

TEST(Geneval, Color) {
  const Prompt prompt = Asking("colors", {Wants("ring", 1, "red")});
  ExpectScores(prompt, {At("ring", "red", 0)}, {.strict = 1, .soft = 1, .dense = 0.85, .exact = 1});
  ExpectScores(prompt, {At("ring", "blue", 0)}, {.strict = 0, .soft = 0.5, .dense = 0.4, .exact = 0.5});
  // The wrong object has the colour.
  ExpectScores(prompt, {At("heart", "red", 0)}, {.strict = 0, .soft = 0, .dense = 0, .exact = 0});
  // One of two is right: enough for the verdict, but not exact, and then its colour earns nothing either.
  ExpectScores(prompt, {At("ring", "blue", 0), At("ring", "red", 1)},
               {.strict = 1, .soft = 1, .dense = 0.85, .exact = 0});
}

TEST(Geneval, ColorsSwapped) {
  const Prompt prompt = Asking("color_attr", {Wants("ring", 1, "red"), Wants("heart", 1, "blue")});
  ExpectScores(prompt, {At("ring", "blue", 0), At("heart", "red", 1)},
               {.strict = 0, .soft = 0.5, .dense = 0.4, .exact = 0.5});
}

TEST(Geneval, PositionIsOfTheClauseThatCarriesIt) {
  // "a ring left of a heart": the heart comes first in the list, the ring refers to it.
  const Prompt prompt = Asking("position", {Wants("heart"), Wants("ring", 1, "", "left of", 0)});
  const Detection left_heart = At("heart", "red", 0);
  ExpectScores(prompt, {At("ring", "red", 0), At("heart", "red", 1)},
               {.strict = 1, .soft = 1, .dense = (0.8 + 0.8 + 1) / 3, .exact = 1});
  ExpectScores(prompt, {left_heart, At("ring", "red", 1)},
               {.strict = 0, .soft = 2. / 3, .dense = 1.6 / 3, .exact = 2. / 3});
  ExpectScores(prompt, {left_heart}, {.strict = 0, .soft = 1. / 3, .dense = 0.8 / 3, .exact = 1. / 3});
  // Rings on both sides: one pair suffices for the verdict; exact has a wrong count and so no relation.
  ExpectScores(prompt, {At("ring", "red", 0), At("heart", "red", 1), At("ring", "red", 2)},
               {.strict = 1, .soft = 1, .dense = 2.6 / 3, .exact = 1. / 3});
}

TEST(Geneval, ExactRelationFailsWithItsTarget) {
  const Prompt prompt = Asking("position", {Wants("heart"), Wants("ring", 1, "", "left of", 0)});
  const std::vector<Detection> two_hearts = {At("ring", "red", 0), At("heart", "red", 1), At("heart", "red", 2)};
  ExpectScores(prompt, two_hearts, {.strict = 1, .soft = 1, .dense = 2.6 / 3, .exact = 1. / 3});
}

TEST(Geneval, ExactRelationHoldsForAllPairs) {
  const Prompt prompt = Asking("", {Wants("heart"), Wants("ring", 2, "", "left of", 0)});
  ExpectScores(prompt, {At("ring", "red", 0), At("ring", "red", 1), At("heart", "red", 2)},
               {.strict = 1, .soft = 1, .dense = 2.6 / 3, .exact = 1});
  ExpectScores(prompt, {At("ring", "red", 0), At("heart", "red", 1), At("ring", "red", 2)},
               {.strict = 1, .soft = 1, .dense = 2.6 / 3, .exact = 2. / 3});
}

TEST(Geneval, ColorAndRelationTogether) {
  const Prompt prompt = Asking("", {Wants("heart", 1, "blue"), Wants("ring", 1, "red", "left of", 0)});
  ExpectScores(prompt, {At("ring", "red", 0), At("heart", "blue", 1)},
               {.strict = 1, .soft = 1, .dense = (4 * 0.85 + 1) / 5, .exact = 1});
  // A blue ring is left of the heart, the red one is right of it: the relation is asked of the red one.
  ExpectScores(prompt, {At("ring", "blue", 0), At("heart", "blue", 1), At("ring", "red", 2)},
               {.strict = 0, .soft = 0.8, .dense = 4 * 0.85 / 5, .exact = 2. / 5});
}

TEST(Geneval, ClausesOfOneClassAddUp) {
  const Prompt prompt = Asking("", {Wants("ring", 1, "red"), Wants("ring", 1, "blue", "right of", 0)});
  ExpectScores(prompt, {At("ring", "red", 0), At("ring", "blue", 1)},
               {.strict = 1, .soft = 1, .dense = (4 * 0.85 + 1) / 5, .exact = 1});
  ExpectScores(prompt, {At("ring", "red", 0)},
               {.strict = 0, .soft = (0.5 + 1 + 0.5) / 5, .dense = (0.4 + 0.9 + 0.4) / 5, .exact = 1. / 5});
}

TEST(Geneval, ExcludeClauses) {
  const Prompt counting = Asking("counting", {Wants("ring", 2)}, {Wants("ring", 3)});  // GenEval's own form
  const Detection ring = At("ring", "red", 0);
  ExpectScores(counting, {ring, ring}, {.strict = 1, .soft = 1, .dense = 0.8, .exact = 1});
  ExpectScores(counting, {}, {.strict = 0, .soft = 0, .dense = 0, .exact = 0});
  ExpectScores(counting, {ring, ring, ring}, {.strict = 0, .soft = 0.25, .dense = 0.2, .exact = 0.5});

  const Prompt no_heart = Asking("", {Wants("ring")}, {Wants("heart", 1, "red")});
  ExpectScores(no_heart, {ring, At("heart", "blue", 1)}, {.strict = 1, .soft = 1, .dense = 0.8, .exact = 1});
  ExpectScores(no_heart, {ring, At("heart", "red", 1)}, {.strict = 0, .soft = 0.5, .dense = 0.4, .exact = 0.5});
}

TEST(Geneval, UnknownObjectsMatchNothing) {
  ExpectScores(Asking("single_object", {Wants("ring")}), {At("", "red", 0)}, {});
}

TEST(Geneval, RefusesPromptsThatAreNotGenevals) {
  EXPECT_THROW(ScoreGeneval(Asking("", {}), {}), InternalError);
  EXPECT_THROW(ScoreGeneval(Asking("", {Wants("ring", 0)}), {}), InternalError);
  EXPECT_THROW(ScoreGeneval(Asking("", {Wants("ring", 1, "", "left of", 0), Wants("heart")}), {}), InternalError);
}

}  // namespace
}  // namespace spotlight
