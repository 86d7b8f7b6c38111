// The log: the coordinator's lines go to the terminal and to <run>/spotlight.log, a worker's to
// <run>/logs/rank_0003.log. Errors are printed by main, once.
#pragma once

#include <string>

namespace spotlight {

// Opens (appends to) the log file; before that, and if the file cannot be opened, lines go to the terminal alone.
// `console`: print lines on standard output too.
void OpenLog(const std::string& path, bool console);

void LogLine(const std::string& text);
// The same with "warning: " before it; counted.
void LogWarning(const std::string& text);
int CountWarnings();

}  // namespace spotlight
