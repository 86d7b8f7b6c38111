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

// A column of a table: its name, its meaning, and where it is in a row.
template <typename Row, typename T>
struct TableColumn {
  const char* name;
  const char* units;
  const char* long_name;
  T Row::*member;
};

// Visits every column of a table, so that creating, appending and reading cannot disagree.
template <typename Visit>
void ForEachColumn(const RolloutRow*, const Visit& visit) {
  using Row = RolloutRow;
  visit(TableColumn<Row, std::int64_t>{"step", "1", "training step", &Row::step});
  visit(TableColumn<Row, std::uint64_t>{"prompt_id", "1", "content hash of the prompt", &Row::prompt_id});
  visit(TableColumn<Row, std::int64_t>{"prompt_index", "1", "index in the prompt list", &Row::prompt_index});
  visit(TableColumn<Row, std::int64_t>{"group", "1", "group within the step", &Row::group});
  visit(TableColumn<Row, std::uint64_t>{"seed", "1", "noise stream", &Row::seed});
  visit(TableColumn<Row, std::int64_t>{"rank", "1", "rank that denoised it", &Row::rank});
  visit(TableColumn<Row, std::uint64_t>{"weight_version", "1", "weights it was denoised with", &Row::weight_version});
  visit(TableColumn<Row, double>{"reward", "1", "weighted mean of the reward terms", &Row::reward});
  visit(TableColumn<Row, double>{"advantage", "1", "normalised reward", &Row::advantage});
  visit(TableColumn<Row, bool>{"trained", "1", "1: took part in an update", &Row::trained});
}
template <typename Visit>
void ForEachColumn(const ExploredRow*, const Visit& visit) {
  using Row = ExploredRow;
  visit(TableColumn<Row, std::int64_t>{"step", "1", "step whose training it ran beside", &Row::step});
  visit(TableColumn<Row, std::uint64_t>{"prompt_id", "1", "content hash of the prompt", &Row::prompt_id});
  visit(TableColumn<Row, std::int64_t>{"prompt_index", "1", "index in the prompt list", &Row::prompt_index});
  visit(TableColumn<Row, std::uint64_t>{"seed", "1", "noise stream", &Row::seed});
  visit(TableColumn<Row, std::int64_t>{"real_steps", "1", "computed denoising steps; 0: all", &Row::real_steps});
  visit(TableColumn<Row, std::int64_t>{"rank", "1", "rank that denoised it", &Row::rank});
  visit(TableColumn<Row, std::uint64_t>{"weight_version", "1", "weights it was denoised with", &Row::weight_version});
  visit(TableColumn<Row, double>{"reward", "1", "weighted mean of the reward terms", &Row::reward});
  visit(TableColumn<Row, bool>{"kept", "1", "1: rolled out in the next step", &Row::kept});
  visit(TableColumn<Row, bool>{"control", "1", "1: kept because it was drawn at random", &Row::control});
}
template <typename Visit>
void ForEachColumn(const DecisionRow*, const Visit& visit) {
  using Row = DecisionRow;
  visit(TableColumn<Row, std::int64_t>{"step", "1", "step in which it was decided", &Row::step});
  visit(TableColumn<Row, std::int64_t>{"seeds", "1", "seeds of each prompt", &Row::seeds});
  visit(TableColumn<Row, std::int64_t>{"real_steps", "1", "computed denoising steps", &Row::real_steps});
  visit(TableColumn<Row, double>{"cost_s", "s", "expected wall time", &Row::cost_s});
  visit(TableColumn<Row, double>{"budget_s", "s", "wall time that it may take", &Row::budget_s});
  visit(TableColumn<Row, bool>{"feasible", "1", "1: it fits", &Row::feasible});
  visit(TableColumn<Row, double>{"score", "1", "what the planner chose by", &Row::score});
  visit(TableColumn<Row, bool>{"chosen", "1", "1: it was taken", &Row::chosen});
}

// HDF5 has no type for truth values that all readers know.
template <typename T>
using Stored = std::conditional_t<std::is_same_v<T, bool>, std::uint8_t, T>;

void CreateScaledSeries(H5File& file, const std::string& name, const std::string& scale, const std::string& units,
                        const std::string& long_name, double fill) {
  file.CreateSeries<double>(name, fill);
  file.SetText(name, "units", units);
  file.SetText(name, "long_name", long_name);
  file.AttachScale(name, scale, 0);
}

// An empty table: a series a column, and the row numbers as their scale. what: one row is.
template <typename Row>
void CreateTable(H5File& file, const std::string& table, const std::string& what) {
  const std::string rows = table + "/row";
  file.CreateSeries<std::int64_t>(rows, 0);
  file.SetText(rows, "units", "1");
  file.SetText(rows, "long_name", what);
  file.MakeScale(rows, "row");
  ForEachColumn(static_cast<const Row*>(nullptr), [&]<typename T>(const TableColumn<Row, T>& column) {
    const std::string name = table + "/" + column.name;
    file.CreateSeries<Stored<T>>(name, Stored<T>{});
    file.SetText(name, "units", column.units);
    file.SetText(name, "long_name", column.long_name);
    file.AttachScale(name, rows, 0);
  });
}

template <typename Row>
void AppendTable(H5File& file, const std::string& table, const std::vector<Row>& rows) {
  if (rows.empty()) return;
  ForEachColumn(static_cast<const Row*>(nullptr), [&]<typename T>(const TableColumn<Row, T>& column) {
    std::vector<Stored<T>> values;
    values.reserve(rows.size());
    for (const Row& row : rows) values.push_back(static_cast<Stored<T>>(row.*column.member));
    file.Append<Stored<T>>(table + "/" + column.name, values);
  });
  const std::int64_t first = file.Dimensions(table + "/row")[0];
  std::vector<std::int64_t> numbers(rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) numbers[i] = first + static_cast<std::int64_t>(i);
  file.Append<std::int64_t>(table + "/row", numbers);
}

template <typename Row>
std::vector<Row> ReadTable(const H5File& file, const std::string& table) {
  std::vector<Row> rows(static_cast<std::size_t>(file.Dimensions(table + "/row")[0]));
  ForEachColumn(static_cast<const Row*>(nullptr), [&]<typename T>(const TableColumn<Row, T>& column) {
    const auto values = file.Read<Stored<T>>(table + "/" + column.name);
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i].*column.member = static_cast<T>(values.at(i));
  });
  return rows;
}

// Scores of the rollouts' reward terms.
void AppendTerms(H5File& file, const std::vector<RolloutRow>& rows) {
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

    CreateTable<RolloutRow>(file, "/rollouts", "image");
    CreateTable<ExploredRow>(file, "/explored", "seed");
    CreateTable<DecisionRow>(file, "/decisions", "arm");
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

void RunFile::AppendIteration(std::int64_t step, const std::map<std::string, double>& values,
                              const IterationRows& rows) {
  Update([&](H5File& file) {
    WriteHistory(file, step, values);
    AppendTable(file, "/rollouts", rows.rollouts);
    if (!rows.rollouts.empty()) AppendTerms(file, rows.rollouts);
    AppendTable(file, "/explored", rows.explored);
    AppendTable(file, "/decisions", rows.decisions);
  });
}

bool RunFile::Holds(const std::string& object) const { return H5File(path_, H5File::Mode::kRead).Has(object); }

std::vector<std::string> RunFile::AttributeNames() const {
  return H5File(path_, H5File::Mode::kRead).AttributeNames("/");
}

std::vector<ExploredRow> RunFile::ReadExplored() const {
  return ReadTable<ExploredRow>(H5File(path_, H5File::Mode::kRead), "/explored");
}

std::string RunFile::ReadAttribute(const std::string& name) const {
  return H5File(path_, H5File::Mode::kRead).GetText("/", name);
}

std::int64_t RunFile::Steps() const { return H5File(path_, H5File::Mode::kRead).Dimensions("/history/step")[0]; }

void RunFile::WriteHistory(H5File& file, std::int64_t step, const std::map<std::string, double>& values) const {
  for (const auto& [name, value] : values) {
    SPOTLIGHT_REQUIRE(file.Has("/history/" + name), "the history value " + name + " has no column in " + path_);
  }
  for (const std::string& name : file.Children("/history")) {
    if (name == "step") continue;
    const auto found = values.find(name);
    const double value = found == values.end() ? kNan : found->second;
    file.Append<double>("/history/" + name, std::span<const double>(&value, 1));
  }
  file.Append<std::int64_t>("/history/step", std::span<const std::int64_t>(&step, 1));
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
    ResizeAll(file, "/rewards", RowsUpTo(file, "/rollouts/step", step));
    for (const std::string table : {"/rollouts", "/explored", "/decisions"}) {
      ResizeAll(file, table, RowsUpTo(file, table + "/step", step));
    }
    for (const std::string& name : file.Children("/samples")) {
      if (std::atoll(name.c_str() + std::string("step_").size()) > step) file.Remove("/samples/" + name);
    }
  });
}

}  // namespace spotlight
