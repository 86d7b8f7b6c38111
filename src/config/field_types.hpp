// A function per type of value that binds a key of the input to a member of a Config; fields.cpp is made of these.
//
// Text and value: whole and real numbers in decimal, as C++ writes them (1e-4); true | false; one name out of a set;
// free text; lists separated by commas, their elements `name` or `name:weight`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "config/config.hpp"
#include "config/fields.hpp"

namespace spotlight {

// The numbers from `low` to `high`, the ends belonging to it unless open; infinite: no bound.
struct NumberRange {
  double low;
  double high;
  bool low_open = false;
  bool high_open = false;

  bool Contains(double value) const;
  std::string Text() const;  // "1 .. 1000", ">= 0", "> 0", "0 <= x < 1"
};

NumberRange AtLeast(double low);
NumberRange Above(double low);
NumberRange Between(double low, double high);
NumberRange BelowOne();  // 0 <= x < 1, for decay rates

Field Flag(const char* key, bool& member, OnResume on_resume, const char* help);
// `multiple`: only its multiples are allowed.
Field Whole(const char* key, int& member, NumberRange range, OnResume on_resume, const char* help, int multiple = 1);
Field Whole64(const char* key, std::uint64_t& member, OnResume on_resume, const char* help);
Field Real(const char* key, double& member, NumberRange range, OnResume on_resume, const char* help);
Field Text(const char* key, std::string& member, OnResume on_resume, const char* help);
// Always kMayChange.
Field InputPath(const char* key, std::string& member, const char* help);
// "hh:mm:ss" or empty.
Field Duration(const char* key, std::string& member, OnResume on_resume, const char* help);
// Names out of `names`, each at most once.
Field NameList(const char* key, std::vector<std::string>& member, std::vector<std::string> names, OnResume on_resume,
               const char* help);
// name:weight, each name at most once, weights within `range`.
Field WeightList(const char* key, std::vector<WeightedName>& member, NumberRange range, OnResume on_resume,
                 const char* help);

// So many numbers, finite ones.
Field NumberList(const char* key, std::vector<double>& member, std::size_t count, OnResume on_resume, const char* help);

// What Choice rests on: get and set of the index into `names`.
Field IndexedChoice(const char* key, std::vector<std::string> names, std::function<std::size_t()> get_index,
                    std::function<void(std::size_t)> set_index, OnResume on_resume, const char* help);

// `names` in the order of the enumerators, which count from 0.
template <typename Enum>
Field Choice(const char* key, Enum& member, std::vector<std::string> names, OnResume on_resume, const char* help) {
  return IndexedChoice(
      key, std::move(names), [&member] { return static_cast<std::size_t>(member); },
      [&member](std::size_t index) { member = static_cast<Enum>(index); }, on_resume, help);
}

// Seconds of "hh:mm:ss" (hours of any number of digits, minutes and seconds below 60); -1: not of this form.
std::int64_t ParseDuration(const std::string& text);

}  // namespace spotlight
