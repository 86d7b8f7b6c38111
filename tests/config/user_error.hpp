// The message of a UserError, for tests of its content.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "base/error.hpp"

namespace spotlight {

// What `action` throws; fails the test and returns "" if it throws no UserError.
template <typename Action>
std::string UserErrorOf(Action&& action) {
  try {
    action();
  } catch (const UserError& error) {
    return error.what();
  }
  ADD_FAILURE() << "no UserError was thrown";
  return "";
}

}  // namespace spotlight
