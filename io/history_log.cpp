#include "io/history_log.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "io/atomic_file.hpp"

namespace spotlight {

HistoryLog::HistoryLog(const std::string& path) : path_(path) {
  if (!std::filesystem::is_regular_file(path)) return;
  const std::string bytes = ReadWholeFile(path);
  const std::size_t whole = bytes.rfind('\n') + 1;  // npos + 1 == 0
  if (whole != bytes.size()) WriteFileAtomically(path, std::string_view(bytes).substr(0, whole));
}

void HistoryLog::Append(std::int64_t step, const std::map<std::string, double>& values) {
  nlohmann::ordered_json line;
  line["step"] = step;
  for (const auto& [name, value] : values) line[name] = value;  // dump() writes what is not finite as null
  const std::string text = line.dump() + "\n";
  const int descriptor = open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor < 0) throw FileError(fmt::format("{}: cannot write: {}", path_, std::strerror(errno)));
  ssize_t written = 0;
  do {
    written = write(descriptor, text.data(), text.size());
  } while (written < 0 && errno == EINTR);
  int code = written < 0 ? errno : written == static_cast<ssize_t>(text.size()) ? 0 : ENOSPC;
  // close() may be the first to report a full quota on a network file system.
  if (close(descriptor) != 0 && code == 0) code = errno;
  if (code != 0) throw FileError(fmt::format("{}: cannot write: {}", path_, std::strerror(code)));
}

void HistoryLog::TruncateAfter(std::int64_t step) {
  if (!std::filesystem::is_regular_file(path_)) return;
  const std::string bytes = ReadWholeFile(path_);
  std::string kept;
  for (std::size_t begin = 0; begin < bytes.size();) {
    const std::size_t end = std::min(bytes.find('\n', begin), bytes.size() - 1) + 1;
    const std::string line = bytes.substr(begin, end - begin);
    begin = end;
    const auto object = nlohmann::json::parse(line, nullptr, false);
    if (!object.is_object() || !object.contains("step") || !object["step"].is_number_integer()) continue;
    if (object["step"].get<std::int64_t>() <= step) kept += line;
  }
  WriteFileAtomically(path_, kept);
}

}  // namespace spotlight
