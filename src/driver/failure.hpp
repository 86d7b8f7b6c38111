// What an exception that ends a run means: the exit code, and what the user is told.
#pragma once

#include <exception>
#include <string>

namespace spotlight {

struct Failure {
  int exit_code = 0;
  std::string text;
};

// Errors of the file system are FileErrors, whoever reports them; what is of none of our kinds is our bug.
Failure DescribeFailure(const std::exception& error);

}  // namespace spotlight
