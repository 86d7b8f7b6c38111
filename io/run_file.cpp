#include "io/run_file.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <type_traits>

#include "base/error.hpp"
#include "base/quantize.hpp"
#include "io/atomic_file.hpp"
#include "io/h5.hpp"

namespace spotlight {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr const char* kRewardUnits = "1";

std::string SampleName(std::int64_t step) { return fmt::format("/samples/step_{:06d}", step); }

// A column of /rollouts: its name, its meaning, and how to take it from a row.
template <typename T>
struct RolloutColumn {
  const char* name;
  const char* long_name;
  T (*value)(const RolloutRow&);
};

// Visits every /rollouts column, so that creating and appending cannot disagree.
template <typename Visit>
void ForEachRolloutColumn(const Visit& visit) {
  using Row = RolloutRow;
  visit(RolloutColumn<std::int64_t>{"step", "training step", [](const Row& r) { return r.step; }});
  visit(RolloutColumn<std::uint64_t>{"prompt_id", "content hash of the prompt",
                                     [](const Row& r) { return r.prompt_id; }});
  visit(RolloutColumn<std::int64_t>{"prompt_index", "index in the prompt list",
                                    [](const Row& r) { return r.prompt_index; }});
  visit(RolloutColumn<std::int64_t>{"group", "group within the step", [](const Row& r) { return r.group; }});
  visit(RolloutColumn<std::uint64_t>{"seed", "noise stream", [](const Row& r) { return r.seed; }});
  visit(RolloutColumn<std::int64_t>{"rank", "rank that denoised it", [](const Row& r) { return r.rank; }});
  visit(RolloutColumn<std::uint64_t>{"weight_version", "weights it was denoised with",
                                     [](const Row& r) { return r.weight_version; }});
  visit(RolloutColumn<double>{"reward", "weighted sum of the reward terms", [](const Row& r) { return r.reward; }});
  visit(RolloutColumn<double>{"advantage", "normalised reward", [](const Row& r) { return r.advantage; }});
  visit(RolloutColumn<std::uint8_t>{"trained", "1: took part in an update",
                                    [](const Row& r) { return static_cast<std::uint8_t>(r.trained); }});
}

void CreateScaledSeries(H5File& file, const std::string& name, const std::string& scale, const std::string& units,
                        const std::string& long_name, double fill) {
  file.CreateSeries<double>(name, fill);
  file.SetText(name, "units", units);
  file.SetText(name, "long_name", long_name);
  file.AttachScale(name, scale, 0);
}

// Rows of a group whose step is at most `step`; steps are not decreasing.
std::int64_t RowsUpTo(const H5File& file, const std::string& steps, std::int64_t step) {
  const auto values = file.Read<std::int64_t>(steps);
  return std::upper_bound(values.begin(), values.end(), step) - values.begin();
}

void ResizeAll(H5File& file, const std::string& group, std::int64_t rows) {
  for (const std::string& name : file.Children(group)) file.Resize(group + "/" + name, rows);
}

}  // namespace

RunFile::RunFile(const std::string& path) : path_(path) {}

void RunFile::Update(const std::function<void(H5File&)>& change) {
  const std::string aside = CopyAside(path_);
  try {
    H5File file(aside, H5File::Mode::kReadWrite);
    change(file);
    file.Close();
  } catch (...) {
    unlink(aside.c_str());
    throw;
  }
  CommitAside(aside, path_);
}

void RunFile::Create(const std::map<std::string, std::string>& root_attributes,
                     const std::vector<Column>& history_columns, const std::vector<std::string>& reward_terms) {
  const std::string aside = AsidePath(path_);
  try {
    H5File file(aside, H5File::Mode::kCreate);
    for (const auto& [name, value] : root_attributes) file.SetText("/", name, value);

    file.CreateSeries<std::int64_t>("/history/step", 0);
    file.SetText("/history/step", "units", "1");
    file.SetText("/history/step", "long_name", "training step");
    file.MakeScale("/history/step", "step");
    for (const Column& column : history_columns) {
      CreateScaledSeries(file, "/history/" + column.name, "/history/step", column.units, column.long_name, kNan);
    }

    file.CreateSeries<std::int64_t>("/rollouts/row", 0);
    file.SetText("/rollouts/row", "units", "1");
    file.SetText("/rollouts/row", "long_name", "image");
    file.MakeScale("/rollouts/row", "row");
    ForEachRolloutColumn([&file]<typename T>(const RolloutColumn<T>& column) {
      const std::string name = std::string("/rollouts/") + column.name;
      file.CreateSeries<T>(name, T{});
      file.SetText(name, "units", "1");
      file.SetText(name, "long_name", column.long_name);
      file.AttachScale(name, "/rollouts/row", 0);
    });
    file.CreateGroup("/rewards");
    for (const std::string& term : reward_terms) {
      CreateScaledSeries(file, "/rewards/" + term, "/rollouts/row", kRewardUnits, "score of reward term " + term, kNan);
    }
    std::string order;  // RolloutRow::terms follows the input's order, HDF5 lists by name
    for (const std::string& term : reward_terms) order += (order.empty() ? "" : ",") + term;
    file.SetText("/rewards", "order", order);
    file.CreateGroup("/samples");
    file.Close();
  } catch (...) {
    unlink(aside.c_str());
    throw;
  }
  CommitAside(aside, path_);
}

void RunFile::SetAttributes(const std::map<std::string, std::string>& attributes) {
  Update([&](H5File& file) {
    for (const auto& [name, value] : attributes) file.SetText("/", name, value);
  });
}

void RunFile::WritePrompts(const std::vector<Prompt>& prompts) {
  std::vector<std::string> texts;
  std::vector<std::string> tags;
  std::vector<std::uint64_t> ids;
  for (const Prompt& prompt : prompts) {
    texts.push_back(prompt.text);
    tags.push_back(prompt.tag);
    ids.push_back(prompt.id);
  }
  Update([&](H5File& file) {
    if (file.Has("/prompts")) file.Remove("/prompts");
    file.WriteTexts("/prompts/text", texts);
    file.WriteTexts("/prompts/tag", tags);
    file.Write<std::uint64_t>("/prompts/id", {static_cast<std::int64_t>(ids.size())}, ids);
  });
}

void RunFile::AppendHistory(std::int64_t step, const std::map<std::string, double>& values) {
  Update([&](H5File& file) { WriteHistory(file, step, values); });
}

void RunFile::AppendRollouts(const std::vector<RolloutRow>& rows) {
  if (rows.empty()) return;
  Update([&](H5File& file) { WriteRollouts(file, rows); });
}

void RunFile::AppendIteration(std::int64_t step, const std::map<std::string, double>& values,
                              const std::vector<RolloutRow>& rows) {
  Update([&](H5File& file) {
    WriteHistory(file, step, values);
    if (!rows.empty()) WriteRollouts(file, rows);
  });
}

void RunFile::WriteHistory(H5File& file, std::int64_t step, const std::map<std::string, double>& values) const {
  std::size_t used = 0;
  for (const std::string& name : file.Children("/history")) {
    if (name == "step") continue;
    const auto found = values.find(name);
    const double value = found == values.end() ? kNan : found->second;
    used += found == values.end() ? 0 : 1;
    file.Append<double>("/history/" + name, std::span<const double>(&value, 1));
  }
  SPOTLIGHT_REQUIRE(used == values.size(), "a history value has no column in " + path_);
  file.Append<std::int64_t>("/history/step", std::span<const std::int64_t>(&step, 1));
}

void RunFile::WriteRollouts(H5File& file, const std::vector<RolloutRow>& rows) const {
  ForEachRolloutColumn([&]<typename T>(const RolloutColumn<T>& column) {
    std::vector<T> values;
    values.reserve(rows.size());
    for (const RolloutRow& row : rows) values.push_back(column.value(row));
    file.Append<T>(std::string("/rollouts/") + column.name, values);
  });
  const std::int64_t first = file.Dimensions("/rollouts/row")[0];
  std::vector<std::int64_t> numbers(rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) numbers[i] = first + static_cast<std::int64_t>(i);
  file.Append<std::int64_t>("/rollouts/row", numbers);

  std::string order = file.GetText("/rewards", "order");
  for (std::size_t term = 0; !order.empty(); ++term) {
    const std::size_t comma = std::min(order.find(','), order.size());
    std::vector<double> values;
    values.reserve(rows.size());
    for (const RolloutRow& row : rows) values.push_back(row.terms.at(term));
    file.Append<double>("/rewards/" + order.substr(0, comma), values);
    order.erase(0, comma + 1);
  }
}

void RunFile::AppendImages(std::int64_t step, const std::vector<Image>& images,
                           const std::vector<std::string>& captions) {
  if (images.empty()) return;
  SPOTLIGHT_REQUIRE(captions.size() == images.size(), "one caption an image");
  std::vector<std::uint8_t> pixels;
  for (const Image& image : images) {
    SPOTLIGHT_REQUIRE(image.height == images[0].height && image.width == images[0].width, "images of one size");
    const std::vector<std::uint8_t> bytes = Quantize(image);
    pixels.insert(pixels.end(), bytes.begin(), bytes.end());
  }
  const std::string name = SampleName(step);
  Update([&](H5File& file) {
    for (const std::string& old : {name, name + "_captions"}) {
      if (file.Has(old)) file.Remove(old);
    }
    const Shape shape = {static_cast<std::int64_t>(images.size()), images[0].height, images[0].width, 3};
    file.Write<std::uint8_t>(name, shape, pixels);
    // HDF5 Image and Palette Specification 1.2
    file.SetText(name, "CLASS", "IMAGE");
    file.SetText(name, "IMAGE_VERSION", "1.2");
    file.SetText(name, "IMAGE_SUBCLASS", "IMAGE_TRUECOLOR");
    file.SetText(name, "INTERLACE_MODE", "INTERLACE_PIXEL");
    file.SetText(name, "long_name", "samples of fixed prompts and seeds: n, height, width, rgb");
    file.SetInt(name, "step", step);
    file.WriteTexts(name + "_captions", captions);
  });
}

void RunFile::TruncateAfter(std::int64_t step) {
  Update([&](H5File& file) {
    ResizeAll(file, "/history", RowsUpTo(file, "/history/step", step));
    const std::int64_t rows = RowsUpTo(file, "/rollouts/step", step);
    ResizeAll(file, "/rollouts", rows);
    ResizeAll(file, "/rewards", rows);
    for (const std::string& name : file.Children("/samples")) {
      if (std::atoll(name.c_str() + std::string("step_").size()) > step) file.Remove("/samples/" + name);
    }
  });
}

}  // namespace spotlight
