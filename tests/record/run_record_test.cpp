// What a run finds in its files when it begins or goes on.
#include "record/run_record.hpp"

#include "io/provenance.hpp"
#include "tests/io/io_test.hpp"

namespace spotlight {
namespace {

class RunRecordTest : public IoTest {
 protected:
  RunRecord Record() { return RunRecord(folder_.string(), {config_, prompts_, prompts_, terms_}); }

  Config config_;
  std::vector<Prompt> prompts_ = {{.id = 1, .text = "a photo"}};
  std::vector<std::string> terms_ = {"geneval_soft"};
};

TEST_F(RunRecordTest, ANewRunBeginsItsHistory) {
  WriteFile("history.jsonl", "{\"step\":0,\"reward_mean\":1.0}\n");
  Record().Create({});
  EXPECT_EQ(ReadFile(Path("history.jsonl")), "");
}

TEST_F(RunRecordTest, KnowsEveryBuildThatHasWrittenIt) {
  Record().Create({});
  const RunFile file(Path("run.h5"));
  const std::string own = file.ReadAttribute("git_shas");
  EXPECT_TRUE(own.starts_with(Provenance().at("git_sha"))) << own;
  Record().Resume(0, {});
  EXPECT_EQ(file.ReadAttribute("git_shas"), own) << "the same build again";
  RunFile(Path("run.h5")).SetAttributes({{"git_shas", "0123"}});
  Record().Resume(0, {});
  Record().Resume(0, {});
  EXPECT_EQ(file.ReadAttribute("git_shas"), "0123 " + own);
}

}  // namespace
}  // namespace spotlight
