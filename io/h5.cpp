#include "io/h5.hpp"

#include <fmt/format.h>
#include <hdf5.h>
#include <hdf5_hl.h>

#include <algorithm>
#include <type_traits>
#include <utility>

#include "base/error.hpp"

namespace spotlight {
namespace {

constexpr hsize_t kSeriesChunkBytes = 8192;  // a chunk is rewritten at each append: small, yet few a file

// The innermost message of HDF5's error stack; of one that quotes the system's ("..., errno = 28, error message = 'No
// space left on device', buf = ..."), the quotation.
std::string TakeHdf5Reason() {
  std::string reason;
  const H5E_walk2_t keep_last = [](unsigned, const H5E_error2_t* error, void* data) -> herr_t {
    if (error->desc != nullptr && error->desc[0] != '\0') *static_cast<std::string*>(data) = error->desc;
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_last, &reason);
  std::string innermost;
  const H5E_walk2_t keep_first = [](unsigned n, const H5E_error2_t* error, void* data) -> herr_t {
    if (n == 0 && error->desc != nullptr) *static_cast<std::string*>(data) = error->desc;
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_first, &innermost);
  H5Eclear2(H5E_DEFAULT);
  if (innermost.empty()) return reason;
  const std::string opening = "error message = '";
  const std::size_t begin = innermost.find(opening);
  if (begin == std::string::npos) return innermost;
  const std::size_t first = begin + opening.size();
  return innermost.substr(first, innermost.find('\'', first) - first);
}

[[noreturn]] void Fail(const std::string& path, const std::string& object, const char* what) {
  const std::string reason = TakeHdf5Reason();
  throw FileError(fmt::format("{}{}{}: cannot {}: {}", path, object.empty() ? "" : ": ", object, what,
                              reason.empty() ? "unknown reason" : reason));
}

// Owns an HDF5 identifier of any kind.
class Id {
 public:
  Id(hid_t id, const std::string& path, const std::string& object, const char* what) : id_(id) {
    if (id_ < 0) Fail(path, object, what);
  }
  ~Id() { H5Idec_ref(id_); }
  Id(const Id&) = delete;
  Id& operator=(const Id&) = delete;
  operator hid_t() const { return id_; }  // NOLINT: passes as the C identifier that it is

 private:
  hid_t id_;
};

template <typename T>
hid_t NativeType() {
  if constexpr (std::is_same_v<T, float>) return H5T_NATIVE_FLOAT;
  if constexpr (std::is_same_v<T, double>) return H5T_NATIVE_DOUBLE;
  if constexpr (std::is_same_v<T, std::int64_t>) return H5T_NATIVE_INT64;
  if constexpr (std::is_same_v<T, std::uint64_t>) return H5T_NATIVE_UINT64;
  if constexpr (std::is_same_v<T, std::uint8_t>) return H5T_NATIVE_UINT8;
}

hid_t CheckedTextType(std::size_t size) {
  const hid_t type = H5Tcopy(H5T_C_S1);
  H5Tset_size(type, size);
  H5Tset_cset(type, H5T_CSET_UTF8);
  H5Tset_strpad(type, H5T_STR_NULLTERM);
  return type;
}

}  // namespace

H5File::H5File(const std::string& path, Mode mode) : path_(path) {
  // All files are closed here. HDF5's own clean-up at exit crashes over a file that could not be written.
  [[maybe_unused]] static const herr_t kNoExitHandler = H5dont_atexit();
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  const Id access(H5Pcreate(H5P_FILE_ACCESS), path, "", "prepare");
  H5Pset_file_locking(access, false, true);
  H5Pset_fclose_degree(access, H5F_CLOSE_STRONG);
  if (mode == Mode::kCreate) {
    id_ = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access);
    if (id_ < 0) Fail(path, "", "create");
  } else {
    id_ = H5Fopen(path.c_str(), mode == Mode::kRead ? H5F_ACC_RDONLY : H5F_ACC_RDWR, access);
    if (id_ < 0) Fail(path, "", "open as HDF5");
  }
}

H5File::~H5File() {
  if (id_ >= 0) H5Fclose(id_);
  H5Eclear2(H5E_DEFAULT);
}

void H5File::Close() {
  if (id_ < 0) return;
  if (H5Fflush(id_, H5F_SCOPE_LOCAL) < 0) Fail(path_, "", "write");
  if (H5Fclose(std::exchange(id_, -1)) < 0) Fail(path_, "", "close");
}

bool H5File::Has(const std::string& object) const {
  // H5Lexists wants every group on the way to exist.
  for (std::size_t slash = object.find('/', 1);; slash = object.find('/', slash + 1)) {
    const std::string part = object.substr(0, slash);
    if (part != "/" && H5Lexists(id_, part.c_str(), H5P_DEFAULT) <= 0) return false;
    if (slash == std::string::npos) return true;
  }
}

std::vector<std::string> H5File::Children(const std::string& group) const {
  const Id id(H5Gopen2(id_, group.c_str(), H5P_DEFAULT), path_, group, "open");
  std::vector<std::string> names;
  const H5L_iterate_t add = [](hid_t, const char* name, const H5L_info_t*, void* data) -> herr_t {
    static_cast<std::vector<std::string>*>(data)->emplace_back(name);
    return 0;
  };
  if (H5Literate(id, H5_INDEX_NAME, H5_ITER_INC, nullptr, add, &names) < 0) Fail(path_, group, "list");
  return names;
}

void H5File::CreateGroup(const std::string& group) {
  const Id links(H5Pcreate(H5P_LINK_CREATE), path_, group, "prepare");
  H5Pset_create_intermediate_group(links, 1);
  const Id id(H5Gcreate2(id_, group.c_str(), links, H5P_DEFAULT, H5P_DEFAULT), path_, group, "create");
}

void H5File::Remove(const std::string& object) {
  if (H5Ldelete(id_, object.c_str(), H5P_DEFAULT) < 0) Fail(path_, object, "remove");
}

template <typename T>
void H5File::Write(const std::string& dataset, const Shape& shape, std::span<const T> values) {
  SPOTLIGHT_REQUIRE(NumElements(shape) == static_cast<std::int64_t>(values.size()), dataset);
  const std::vector<hsize_t> sizes(shape.begin(), shape.end());
  const Id space(H5Screate_simple(static_cast<int>(sizes.size()), sizes.data(), nullptr), path_, dataset, "create");
  const Id links(H5Pcreate(H5P_LINK_CREATE), path_, dataset, "prepare");
  H5Pset_create_intermediate_group(links, 1);
  const Id id(H5Dcreate2(id_, dataset.c_str(), NativeType<T>(), space, links, H5P_DEFAULT, H5P_DEFAULT), path_, dataset,
              "create");
  if (!values.empty() && H5Dwrite(id, NativeType<T>(), H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) < 0) {
    Fail(path_, dataset, "write");
  }
}

template <typename T>
std::vector<T> H5File::Read(const std::string& dataset) const {
  const Id id(H5Dopen2(id_, dataset.c_str(), H5P_DEFAULT), path_, dataset, "open");
  std::vector<T> values(static_cast<std::size_t>(NumElements(Dimensions(dataset))));
  if (!values.empty() && H5Dread(id, NativeType<T>(), H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) < 0) {
    Fail(path_, dataset, "read");
  }
  return values;
}

Shape H5File::Dimensions(const std::string& dataset) const {
  const Id id(H5Dopen2(id_, dataset.c_str(), H5P_DEFAULT), path_, dataset, "open");
  const Id space(H5Dget_space(id), path_, dataset, "read");
  const int rank = H5Sget_simple_extent_ndims(space);
  if (rank < 0) Fail(path_, dataset, "read");
  std::vector<hsize_t> sizes(static_cast<std::size_t>(rank));
  H5Sget_simple_extent_dims(space, sizes.data(), nullptr);
  return Shape(sizes.begin(), sizes.end());
}

char H5File::TypeCode(const std::string& dataset) const {
  const Id id(H5Dopen2(id_, dataset.c_str(), H5P_DEFAULT), path_, dataset, "open");
  const Id type(H5Dget_type(id), path_, dataset, "read");
  switch (H5Tget_class(type)) {
    case H5T_FLOAT:
      return H5Tget_size(type) == sizeof(float) ? 'f' : 'd';
    case H5T_INTEGER:
      return H5Tget_sign(type) == H5T_SGN_NONE ? 'u' : 'i';
    case H5T_STRING:
      return 's';
    default:
      throw FileError(path_ + ": " + dataset + ": holds neither numbers nor text");
  }
}

void H5File::WriteTexts(const std::string& dataset, const std::vector<std::string>& values) {
  const hsize_t size = values.size();
  const Id space(H5Screate_simple(1, &size, nullptr), path_, dataset, "create");
  const Id type(CheckedTextType(H5T_VARIABLE), path_, dataset, "create");
  const Id links(H5Pcreate(H5P_LINK_CREATE), path_, dataset, "prepare");
  H5Pset_create_intermediate_group(links, 1);
  const Id id(H5Dcreate2(id_, dataset.c_str(), type, space, links, H5P_DEFAULT, H5P_DEFAULT), path_, dataset, "create");
  std::vector<const char*> pointers;
  pointers.reserve(values.size());
  for (const std::string& value : values) pointers.push_back(value.c_str());
  if (!values.empty() && H5Dwrite(id, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, pointers.data()) < 0) {
    Fail(path_, dataset, "write");
  }
}

std::vector<std::string> H5File::ReadTexts(const std::string& dataset) const {
  const Id id(H5Dopen2(id_, dataset.c_str(), H5P_DEFAULT), path_, dataset, "open");
  const Id space(H5Dget_space(id), path_, dataset, "read");
  const Id type(CheckedTextType(H5T_VARIABLE), path_, dataset, "read");
  std::vector<char*> pointers(static_cast<std::size_t>(NumElements(Dimensions(dataset))));
  if (pointers.empty()) return {};
  if (H5Dread(id, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, pointers.data()) < 0) Fail(path_, dataset, "read");
  std::vector<std::string> values;
  values.reserve(pointers.size());
  for (const char* pointer : pointers) values.emplace_back(pointer == nullptr ? "" : pointer);
  H5Dvlen_reclaim(type, space, H5P_DEFAULT, pointers.data());
  return values;
}

template <typename T>
void H5File::CreateSeries(const std::string& dataset, T fill) {
  const hsize_t size = 0;
  const hsize_t limit = H5S_UNLIMITED;
  const hsize_t chunk = kSeriesChunkBytes / sizeof(T);
  const Id space(H5Screate_simple(1, &size, &limit), path_, dataset, "create");
  const Id create(H5Pcreate(H5P_DATASET_CREATE), path_, dataset, "prepare");
  H5Pset_chunk(create, 1, &chunk);
  H5Pset_fill_value(create, NativeType<T>(), &fill);
  const Id links(H5Pcreate(H5P_LINK_CREATE), path_, dataset, "prepare");
  H5Pset_create_intermediate_group(links, 1);
  const Id id(H5Dcreate2(id_, dataset.c_str(), NativeType<T>(), space, links, create, H5P_DEFAULT), path_, dataset,
              "create");
}

template <typename T>
void H5File::Append(const std::string& dataset, std::span<const T> values) {
  if (values.empty()) return;
  const Id id(H5Dopen2(id_, dataset.c_str(), H5P_DEFAULT), path_, dataset, "open");
  const hsize_t count = values.size();
  const auto start = static_cast<hsize_t>(NumElements(Dimensions(dataset)));
  const hsize_t length = start + count;
  if (H5Dset_extent(id, &length) < 0) Fail(path_, dataset, "extend");
  const Id file_space(H5Dget_space(id), path_, dataset, "extend");
  H5Sselect_hyperslab(file_space, H5S_SELECT_SET, &start, nullptr, &count, nullptr);
  const Id memory_space(H5Screate_simple(1, &count, nullptr), path_, dataset, "extend");
  if (H5Dwrite(id, NativeType<T>(), memory_space, file_space, H5P_DEFAULT, values.data()) < 0) {
    Fail(path_, dataset, "write");
  }
}

void H5File::Resize(const std::string& dataset, std::int64_t length) {
  const Id id(H5Dopen2(id_, dataset.c_str(), H5P_DEFAULT), path_, dataset, "open");
  const auto size = static_cast<hsize_t>(length);
  if (H5Dset_extent(id, &size) < 0) Fail(path_, dataset, "resize");
}

void H5File::SetText(const std::string& object, const std::string& name, const std::string& value) {
  const Id owner(H5Oopen(id_, object.c_str(), H5P_DEFAULT), path_, object, "open");
  if (H5Aexists(owner, name.c_str()) > 0) H5Adelete(owner, name.c_str());
  // Variable length: a fixed-length attribute lives in the object header, which ends at 64 KiB.
  const Id type(CheckedTextType(H5T_VARIABLE), path_, object, "write");
  const Id space(H5Screate(H5S_SCALAR), path_, object, "write");
  const Id id(H5Acreate2(owner, name.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT), path_, object + "@" + name,
              "create");
  const char* const text = value.c_str();
  if (H5Awrite(id, type, &text) < 0) Fail(path_, object + "@" + name, "write");
}

void H5File::SetInt(const std::string& object, const std::string& name, std::int64_t value) {
  const Id owner(H5Oopen(id_, object.c_str(), H5P_DEFAULT), path_, object, "open");
  if (H5Aexists(owner, name.c_str()) > 0) H5Adelete(owner, name.c_str());
  const Id space(H5Screate(H5S_SCALAR), path_, object, "write");
  const Id id(H5Acreate2(owner, name.c_str(), H5T_NATIVE_INT64, space, H5P_DEFAULT, H5P_DEFAULT), path_,
              object + "@" + name, "create");
  if (H5Awrite(id, H5T_NATIVE_INT64, &value) < 0) Fail(path_, object + "@" + name, "write");
}

std::vector<std::string> H5File::AttributeNames(const std::string& object) const {
  const Id opened(H5Oopen(id_, object.c_str(), H5P_DEFAULT), path_, object, "open");
  std::vector<std::string> names;
  const auto add = [](hid_t, const char* name, const H5A_info_t*, void* list) -> herr_t {
    static_cast<std::vector<std::string>*>(list)->emplace_back(name);
    return 0;
  };
  if (H5Aiterate2(opened, H5_INDEX_NAME, H5_ITER_INC, nullptr, add, &names) < 0) Fail(path_, object, "read");
  return names;
}

bool H5File::HasAttribute(const std::string& object, const std::string& name) const {
  return H5Aexists_by_name(id_, object.c_str(), name.c_str(), H5P_DEFAULT) > 0;
}

std::string H5File::GetText(const std::string& object, const std::string& name) const {
  const std::string place = object + "@" + name;
  const Id id(H5Aopen_by_name(id_, object.c_str(), name.c_str(), H5P_DEFAULT, H5P_DEFAULT), path_, place, "open");
  const Id type(H5Aget_type(id), path_, place, "read");
  if (H5Tis_variable_str(type) <= 0) throw FileError(path_ + ": " + place + ": not a text");
  char* text = nullptr;
  if (H5Aread(id, type, &text) < 0 || text == nullptr) Fail(path_, place, "read");
  std::string value = text;
  H5free_memory(text);
  return value;
}

std::int64_t H5File::GetInt(const std::string& object, const std::string& name) const {
  const std::string place = object + "@" + name;
  const Id id(H5Aopen_by_name(id_, object.c_str(), name.c_str(), H5P_DEFAULT, H5P_DEFAULT), path_, place, "open");
  std::int64_t value = 0;
  if (H5Aread(id, H5T_NATIVE_INT64, &value) < 0) Fail(path_, place, "read");
  return value;
}

void H5File::MakeScale(const std::string& dataset, const std::string& label) {
  const Id id(H5Dopen2(id_, dataset.c_str(), H5P_DEFAULT), path_, dataset, "open");
  if (H5DSset_scale(id, label.c_str()) < 0) Fail(path_, dataset, "make a dimension scale of");
}

void H5File::AttachScale(const std::string& dataset, const std::string& scale, int dimension) {
  const Id id(H5Dopen2(id_, dataset.c_str(), H5P_DEFAULT), path_, dataset, "open");
  const Id scale_id(H5Dopen2(id_, scale.c_str(), H5P_DEFAULT), path_, scale, "open");
  if (H5DSattach_scale(id, scale_id, static_cast<unsigned>(dimension)) < 0) Fail(path_, dataset, "attach a scale to");
}

#define SPOTLIGHT_H5_TYPE(T)                                                            \
  template void H5File::Write<T>(const std::string&, const Shape&, std::span<const T>); \
  template std::vector<T> H5File::Read<T>(const std::string&) const;                    \
  template void H5File::CreateSeries<T>(const std::string&, T);                         \
  template void H5File::Append<T>(const std::string&, std::span<const T>);
SPOTLIGHT_H5_TYPE(float)
SPOTLIGHT_H5_TYPE(double)
SPOTLIGHT_H5_TYPE(std::int64_t)
SPOTLIGHT_H5_TYPE(std::uint64_t)
SPOTLIGHT_H5_TYPE(std::uint8_t)
#undef SPOTLIGHT_H5_TYPE

}  // namespace spotlight
