// The back end in use with some operations exchanged, until the end of the scope.
#pragma once

#include "kernels/operations.hpp"

namespace spotlight {

class ChangedBackEnd {
 public:
  // change(operations): what is to be different.
  template <typename Change>
  explicit ChangedBackEnd(const Change& change) : usual_(ActiveOperations()), changed_(usual_) {
    change(changed_);
    UseOperations(changed_);
  }
  ~ChangedBackEnd() { UseOperations(usual_); }
  ChangedBackEnd(const ChangedBackEnd&) = delete;
  ChangedBackEnd& operator=(const ChangedBackEnd&) = delete;

 private:
  const Operations& usual_;
  Operations changed_;
};

}  // namespace spotlight
