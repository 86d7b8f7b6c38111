// Names of a tensor store's files: iteration_000012_00.h5, _01.h5, ... of one folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace spotlight {

std::string TensorStoreFileName(std::uint32_t iteration, std::size_t number);
// None if the name is not a store's.
std::optional<std::uint32_t> TensorStoreIteration(std::string_view name);
// The store's files in a folder, sorted by name. Half-made ones, which only a killed process leaves, are removed.
// FileError if the folder cannot be listed.
std::vector<std::string> ListTensorStore(const std::string& folder);

// Removes a store's files, and its folder if nothing else is in it; for the end of a finished run, when no store has it
// open. A folder that is not there is no error; FileError if a file cannot be removed.
void RemoveTensorStore(const std::string& folder);

}  // namespace spotlight
