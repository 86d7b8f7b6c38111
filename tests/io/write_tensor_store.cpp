// Makes a store for tests/python/test_tensor_store.py: write_tensor_store FOLDER
//
// Rollout 1 is finished, rollout 2 has done three steps, exploration 3 two. Says "written" and keeps the store open
// until its input ends.
#include <cstdio>

#include "tensor_store_content.hpp"

int main(int argc, char** argv) {
  using namespace spotlight;
  if (argc != 2) return 2;
  const TensorStore::Options options = StoreOptions(argv[1]);
  const std::size_t floats = options.sizes.Floats();
  TensorStore store(options);
  const auto commit = [&](const Request& request, std::uint32_t steps) {
    return store.CommitState(request, StoreState(request, steps, floats)) && store.WaitWritten(20);
  };
  bool good = store.CommitSample(StoreSample(StoreRequest(1), floats)) && store.WaitWritten(20);
  for (const std::uint32_t steps : {1u, 2u, 3u}) good = good && commit(StoreRequest(2), steps);
  for (const std::uint32_t steps : {1u, 2u}) good = good && commit(StoreRequest(3, RequestKind::kExplore), steps);
  if (!good) return 1;
  std::puts("written");
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }
  return 0;
}
