#include "reward/command_term.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <thread>

#include "base/error.hpp"
#include "base/quantize.hpp"
#include "reward/reward.hpp"

namespace spotlight {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::ThrowsMessage;

constexpr milliseconds kPlenty{20'000};

// A shell command that answers every 2x1 image for the prompt "dog" with what `answer` prints.
std::string ForEachDog(const std::string& answer) {
  return "while read -r word version bytes width height; do head -c 9 >/dev/null; " + answer + "; done";
}

Image Small() { return {1, 2, {0, 0.5f, 1, 0, 0, 0}}; }

double JudgeDog(const std::string& command, milliseconds limit = kPlenty) {
  return CommandJudge(command, limit).Judge("dog", Small());
}

std::string Brightness() { return "python3 " SPOTLIGHT_SOURCE_DIR "/scripts/rewards/brightness.py"; }

// Whether the process is there and not only waiting to be waited for.
bool Runs(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string stat;
  std::getline(file, stat);
  return !stat.empty() && stat[stat.rfind(')') + 2] != 'Z';
}

bool EndsSoon(pid_t pid) {
  for (int look = 0; look < 500 && Runs(pid); ++look) std::this_thread::sleep_for(milliseconds{10});
  return !Runs(pid);
}

class CommandTermTest : public ::testing::Test {
 protected:
  CommandTermTest() {
    folder_ = std::filesystem::temp_directory_path() / ("command_term_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  ~CommandTermTest() override { std::filesystem::remove_all(folder_); }

  std::string File(const std::string& name) const { return (folder_ / name).string(); }

  // The number in a file that another process writes; waits for it.
  pid_t NumberIn(const std::string& name) const {
    for (int look = 0; look < 500; ++look) {
      pid_t number = 0;
      char end = 0;
      std::ifstream file(File(name));
      if (file >> number && file.get(end)) return number;
      std::this_thread::sleep_for(milliseconds{10});
    }
    return 0;
  }

  std::filesystem::path folder_;
};

TEST_F(CommandTermTest, AnswersWithTheProgramsNumber) {
  EXPECT_EQ(JudgeDog(ForEachDog("echo 0.25")), 0.25);
  EXPECT_EQ(JudgeDog(ForEachDog("echo ' -1.5e-3\r'")), -1.5e-3);
  CommandJudge counts("n=0; " + ForEachDog("n=$((n + 1)); echo $n"), kPlenty);  // one process for all images
  EXPECT_EQ(counts.pid(), 0);
  for (int n = 1; n <= 3; ++n) EXPECT_EQ(counts.Judge("dog", Small()), n);
  EXPECT_GT(counts.pid(), 0);
}

TEST_F(CommandTermTest, SendsHeaderPromptAndThePixelsOfThePngFile) {
  const std::string prompt = "größer\n\"世界\"";
  const float nan = std::numeric_limits<float>::quiet_NaN();
  Image image{2, 3, {0.5f, -1, 2, nan, 0.25f, 1, 0.1f, 10.5f / 255, 0.3f, 0.7f, 11.5f / 255, 0, 0, 0, 1, 1, 1, 0.99f}};
  std::ostringstream expected;
  expected << "image 1 " << prompt.size() << " 3 2\n" << prompt;
  for (const std::uint8_t byte : Quantize(image)) expected << static_cast<char>(byte);
  const std::size_t size = expected.str().size();

  EXPECT_EQ(CommandJudge("head -c " + std::to_string(size) + " >" + File("request") + "; echo 1", kPlenty)
                .Judge(prompt, image),
            1);
  std::ifstream file(File("request"), std::ios::binary);
  std::ostringstream request;
  request << file.rdbuf();
  EXPECT_EQ(request.str(), expected.str());
}

TEST_F(CommandTermTest, BigImagesAndSmallOnesThroughTheExample) {
  CommandJudge judge(Brightness(), kPlenty);
  EXPECT_EQ(judge.Judge("", {1, 2, {1, 1, 1, 0, 0, 0}}), 0.5);
  const Image big{1280, 1280, std::vector<float>(std::size_t{3} * 1280 * 1280, 0.6f)};  // 75 pipes full
  EXPECT_NEAR(judge.Judge("a bright photo", big), 153.0 / 255, 1e-12);
  EXPECT_EQ(judge.Judge("dark", {1, 1, {0, 0, 0}}), 0);
}

TEST_F(CommandTermTest, ThreadsTakeTurns) {
  CommandJudge judge(Brightness(), kPlenty);
  std::vector<std::thread> threads;
  std::array<int, 4> right{};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const float value = static_cast<float>(t) / 5;  // of 255 a whole number
      const Image image{100, 100 + t, std::vector<float>(std::size_t{300} * (100 + t), value)};
      for (int i = 0; i < 10; ++i) right[t] += std::abs(judge.Judge("grey", image) - value) < 1e-6 ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(right, ::testing::Each(10));
}

TEST_F(CommandTermTest, SaysHowTheProgramEnded) {
  EXPECT_THAT([] { JudgeDog("no-such-program-here --x"); },
              ThrowsMessage<FileError>(AllOf(HasSubstr("reward/command = no-such-program-here --x: ended with exit "
                                                       "status 127 without an answer"),
                                             HasSubstr("scripts/rewards/README.md"))));
  EXPECT_THAT([] { JudgeDog("exit 3"); }, ThrowsMessage<FileError>(HasSubstr("ended with exit status 3")));
  EXPECT_THAT([] { JudgeDog("read -r line; kill -SEGV $$"); },
              ThrowsMessage<FileError>(HasSubstr("was killed by signal 11 (Segmentation fault) without an answer")));
  EXPECT_THAT([] { JudgeDog("printf 'out of memory'"); },
              ThrowsMessage<FileError>(HasSubstr("status 0 without an answer, its last words were \"out of memory\"")));
  EXPECT_THAT([] { JudgeDog("exec >&-; sleep 60"); },
              ThrowsMessage<FileError>(HasSubstr("closed its standard output")));
}

TEST_F(CommandTermTest, AProgramThatEndsBetweenTwoImagesDoesNotEndUs) {
  const Image big{512, 512, std::vector<float>(std::size_t{3} * 512 * 512)};
  const std::string whole = std::to_string(std::string("image 1 3 512 512\ndog").size() + big.rgb.size());
  CommandJudge judge("head -c " + whole + " >/dev/null; echo 1; exit 9", kPlenty);
  ASSERT_EQ(judge.Judge("dog", big), 1);
  ASSERT_TRUE(EndsSoon(judge.pid()));
  EXPECT_THAT([&] { judge.Judge("dog", big); }, ThrowsMessage<FileError>(HasSubstr("ended with exit status 9")));
}

TEST_F(CommandTermTest, AFailureIsFinal) {
  CommandJudge judge("echo x >>" + File("starts") + "; exit 3", kPlenty);
  for (int call = 0; call < 3; ++call) {
    EXPECT_THAT([&] { judge.Judge("dog", Small()); }, ThrowsMessage<FileError>(HasSubstr("exit status 3")));
    EXPECT_EQ(judge.pid(), 0);
  }
  std::ifstream file(File("starts"));
  std::string all;
  std::getline(file, all, '\0');
  EXPECT_EQ(all, "x\n");  // it was started once
}

TEST_F(CommandTermTest, ALateProgramIsEnded) {
  CommandJudge judge("echo $$ >" + File("pid") + "; " + ForEachDog("sleep 60"), milliseconds{100});
  const auto start = steady_clock::now();
  EXPECT_THAT([&] { judge.Judge("dog", Small()); },
              ThrowsMessage<FileError>(AllOf(HasSubstr("has not answered within 0.2 s"),  // start and image
                                             HasSubstr("reward/command_timeout"))));
  EXPECT_LT(steady_clock::now() - start, milliseconds{2000});
  EXPECT_FALSE(Runs(NumberIn("pid")));
  // Neither does one that reads nothing stop us, whose request fills the pipe.
  const Image big{512, 512, std::vector<float>(std::size_t{3} * 512 * 512)};
  EXPECT_THAT([&] { CommandJudge("sleep 60", milliseconds{100}).Judge("dog", big); },
              ThrowsMessage<FileError>(HasSubstr("has not answered within 0.2 s")));
  // Only the first image has the time to start on top.
  CommandJudge second(ForEachDog("echo 1; " + ForEachDog("sleep 60")), milliseconds{500});
  EXPECT_EQ(second.Judge("dog", Small()), 1);
  EXPECT_THAT([&] { second.Judge("dog", Small()); }, ThrowsMessage<FileError>(HasSubstr("within 0.5 s")));
}

TEST_F(CommandTermTest, AnswersThatAreNoNumber) {
  for (const std::string answer : {"", "good", "0.5 0.6", "nan", "inf", "1e999", "0x10", "0,5"}) {
    EXPECT_THAT([&] { JudgeDog(ForEachDog("echo '" + answer + "'")); },
                ThrowsMessage<FileError>(AllOf(HasSubstr("answered \"" + answer + "\""), HasSubstr("finite number"))));
  }
  EXPECT_THAT(
      [] { JudgeDog(ForEachDog("echo 'error: no text in \"quotes\"'")); },
      ThrowsMessage<FileError>(AllOf(HasSubstr("error: no text in \"quotes\""), HasSubstr("image of \"dog\""))));
  EXPECT_THAT([] { JudgeDog(ForEachDog("printf '\\001\\033[31m\\n'")); },
              ThrowsMessage<FileError>(HasSubstr("answered \"??[31m\"")));
}

TEST_F(CommandTermTest, OutputThatIsNotOneLinePerImage) {
  EXPECT_THAT([] { JudgeDog(ForEachDog("printf '1\\n2\\n'")); },
              ThrowsMessage<FileError>(HasSubstr("answered \"1?2\", more than one line")));
  CommandJudge chatty(ForEachDog("echo 1; sleep 0.1; echo done; echo >" + File("said")), kPlenty);
  EXPECT_EQ(chatty.Judge("dog", Small()), 1);
  while (!std::filesystem::exists(File("said"))) std::this_thread::sleep_for(milliseconds{5});
  EXPECT_THAT([&] { chatty.Judge("dog", Small()); },
              ThrowsMessage<FileError>(HasSubstr("wrote \"done\" that no image asked for")));
  const Image big{512, 512, std::vector<float>(std::size_t{3} * 512 * 512)};
  EXPECT_THAT([&] { CommandJudge("read -r line; echo 1; sleep 60", kPlenty).Judge("dog", big); },
              ThrowsMessage<FileError>(HasSubstr("answered \"1\" before it had read the whole image")));
  // Its word may be there before the image is offered, or come meanwhile.
  EXPECT_THAT([&] { CommandJudge("exec <&-; echo 1; sleep 60", kPlenty).Judge("dog", big); },
              ThrowsMessage<FileError>(AnyOf(HasSubstr("answered \"1\" before it had read the whole image"),
                                             HasSubstr("wrote \"1\" that no image asked for"))));
  EXPECT_THAT([] { JudgeDog("yes | tr -d '\\n'"); },
              ThrowsMessage<FileError>(AllOf(HasSubstr("a line without end"), HasSubstr("yyy...\""),
                                             Not(HasSubstr(std::string(201, 'y'))))));
}

TEST_F(CommandTermTest, NothingOutlivesTheTerm) {
  pid_t pid = 0;
  {
    // A program that does not mind SIGTERM or the end of its input, and one that it started.
    CommandJudge judge("trap '' TERM; sleep 600 & echo $! >" + File("grandchild") + "; " + ForEachDog("echo 1") +
                           "; while true; do sleep 1; done",
                       kPlenty);
    EXPECT_EQ(judge.Judge("dog", Small()), 1);
    pid = judge.pid();
    EXPECT_TRUE(Runs(pid));
    EXPECT_EQ(getpgid(pid), pid);
  }
  EXPECT_FALSE(std::filesystem::exists("/proc/" + std::to_string(pid)));  // not even a zombie
  EXPECT_TRUE(EndsSoon(NumberIn("grandchild")));
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);  // we have no child left
}

TEST_F(CommandTermTest, NothingOutlivesAProcessThatIsKilled) {
  const pid_t ours = fork();
  if (ours == 0) {
    CommandJudge judge("trap '' TERM HUP; echo $$ >" + File("pid") + "; sleep 600 & echo $! >" + File("grandchild") +
                           "; " + ForEachDog("sleep 600"),
                       std::chrono::seconds{600});
    judge.Judge("dog", Small());
    _exit(1);
  }
  const pid_t pid = NumberIn("pid");
  const pid_t grandchild = NumberIn("grandchild");
  EXPECT_TRUE(Runs(pid));
  EXPECT_TRUE(Runs(grandchild));
  kill(ours, SIGKILL);
  waitpid(ours, nullptr, 0);
  EXPECT_TRUE(EndsSoon(pid));
  EXPECT_TRUE(EndsSoon(grandchild));
}

TEST_F(CommandTermTest, TheProgramHasNeitherOurSignalMaskNorOurDescriptors) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  const auto ignored = signal(SIGTERM, SIG_IGN);
  // Signals 1 to 28; glibc ignores its own two for every program that it starts. Counts of lines, and of descriptors.
  EXPECT_EQ(JudgeDog("a=$(grep -c 'SigBlk:.*0000000$' /proc/$$/status); b=$(grep -c 'SigIgn:.*0000000$' "
                     "/proc/$$/status); set -- /proc/$$/fd/[3-9]*; [ -e \"$1\" ] && c=$# || c=0; " +
                     ForEachDog("echo $a$b$c")),
            110);
  signal(SIGTERM, ignored);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

TEST_F(CommandTermTest, IsATermOfTheReward) {
  RewardConfig config;
  config.terms = {{"brightness", 1}, {"command", 3}};
  EXPECT_THROW(Reward(config, std::nullopt), InternalError);
  config.command = "echo x >" + File("started") + "; " + ForEachDog("echo 5");
  {
    const Reward reward(config, std::nullopt);
    EXPECT_THAT(reward.names(), ::testing::ElementsAre("brightness", "command"));
    Prompt prompt;
    prompt.text = "dog";
    prompt.rewards = {"brightness"};
    reward.Score(prompt, Small());
    EXPECT_FALSE(std::filesystem::exists(File("started")));  // not before the first image that it judges
    prompt.rewards.clear();
    const RewardScore score = reward.Score(prompt, Small());
    EXPECT_EQ(score.terms[1], 5);
    EXPECT_DOUBLE_EQ(score.total, (score.terms[0] + 3 * 5) / 4);
  }
  EXPECT_THAT(DescribeRewards(), AllOf(HasSubstr("  command "), HasSubstr("needs: reward/command\n")));
}

}  // namespace
}  // namespace spotlight
