#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <thread>

#include "base/check.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/nearest_name.h"
#include "base/queue.h"
#include "base/sha256.h"

namespace tutti {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

// A folder that is gone at the end of the test.
class Files : public testing::Test {
 protected:
  Files() {
    std::string name = std::filesystem::temp_directory_path() / "tutti-base-XXXXXX";
    folder_ = ::mkdtemp(name.data());
  }
  ~Files() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::string folder_;
};

TEST_F(Files, WrittenFilesReadBackWithTheirMode) {
  write_file(path("a"), "hello", 0600);
  EXPECT_EQ(read_file(path("a")), "hello");
  struct stat info{};
  ASSERT_EQ(::stat(path("a").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  write_file(path("a"), "", 0600);
  EXPECT_EQ(read_file(path("a")), "");
}

TEST_F(Files, ErrorsNameThePathAndTheReason) {
  EXPECT_THAT([&] { read_file(path("none")); }, ThrowsMessage<IoError>(HasSubstr("none: No such file or directory")));
  EXPECT_THAT([&] { read_file(folder_); }, ThrowsMessage<IoError>(HasSubstr("not a regular file")));
  EXPECT_THAT([&] { write_file(path("no/such/folder"), "x"); }, ThrowsMessage<IoError>(HasSubstr("no/such/folder")));
  ASSERT_EQ(::mkdir(path("folder").c_str(), 0700), 0);
  EXPECT_THAT([&] { write_file(path("folder"), "x"); }, ThrowsMessage<IoError>(HasSubstr("Is a directory")));
  EXPECT_FALSE(file_exists(path("folder") + ".tmp." + std::to_string(::getpid())));
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_THAT([&] { read_file(path("pipe")); }, ThrowsMessage<IoError>(HasSubstr("pipe: not a regular file")));
  write_file(path("huge"), "{");
  ASSERT_EQ(::truncate(path("huge").c_str(), off_t{100} << 30), 0);
  EXPECT_THAT([&] { read_file(path("huge")); }, ThrowsMessage<IoError>(HasSubstr("it has 107374182400 bytes, at most 1073741824 are taken")));
  write_file(path("empty"), "");
  EXPECT_THAT([&] { MappedFile::open(path("empty")); }, ThrowsMessage<IoError>(HasSubstr("the file is empty")));
}

TEST_F(Files, MapsShowTheBytesAlsoAfterARelease) {
  const std::string contents(20000, 'q');
  write_file(path("m"), contents);
  const auto map = MappedFile::open(path("m"));
  ASSERT_EQ(map->bytes().size(), contents.size());
  map->release(100, 15000);
  map->release(19000, 5000);  // past the end
  EXPECT_EQ(std::memcmp(map->bytes().data(), contents.data(), contents.size()), 0);
}

TEST(Json, ErrorsNameTheSourceAndTheByte) {
  EXPECT_THAT([] { parse_json("{\"a\": }", "config.json"); }, ThrowsMessage<IoError>(HasSubstr("config.json: not valid JSON at byte 7: syntax error while parsing value")));
  EXPECT_THAT([] { parse_json(std::string(500, '['), "x"); }, ThrowsMessage<IoError>(HasSubstr("nested deeper than 128 levels")));
  EXPECT_EQ(parse_json("{\"b\": 1, \"a\": 2}", "x").begin().key(), "b");
}

TEST(Json, InvalidUtf8IsReplaced) { EXPECT_EQ(dump_json(Json("a\xff")), "\"a\xef\xbf\xbd\""); }

TEST(Sha256, KnownAnswer) {
  const std::string text = "abc";
  EXPECT_EQ(to_hex(sha256(std::as_bytes(std::span(text)))), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Queue, GivesItemsInOrderAndEndsWhenClosed) {
  Queue<int> queue;
  std::thread producer([&] {
    for (int i = 0; i < 1000; ++i) queue.push(i);
    queue.close();
  });
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(queue.pop(Deadline::after(std::chrono::seconds(10))), i);
  EXPECT_EQ(queue.pop(Deadline::never()), std::nullopt);
  EXPECT_FALSE(queue.push(1));
  producer.join();
}

TEST(Queue, PopGivesUpAtItsDeadline) {
  Queue<int> queue;
  const auto begin = Clock::now();
  EXPECT_EQ(queue.pop(Deadline::after(std::chrono::milliseconds(20))), std::nullopt);
  EXPECT_GE(Clock::now() - begin, std::chrono::milliseconds(20));
}

TEST(Deadline, LeftIsNeverNegative) {
  EXPECT_EQ(Deadline::after(std::chrono::seconds(-1)).left().count(), 0);
  EXPECT_TRUE(Deadline::after(std::chrono::seconds(-1)).passed());
  EXPECT_GT(Deadline::never().left(), std::chrono::hours(1));
}

TEST(CheckDeathTest, PrintsTheValues) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_DEATH(CHECK_EQ(1 + 1, 3), "CHECK failed: 1 \\+ 1 == 3 \\(2 vs 3\\)");
}

// What goes to stderr, captured through a pipe (which is not a terminal).
TEST(Log, LinesWithoutATerminalBeginWithTheDate) {
  testing::internal::CaptureStderr();
  log::setup({.prefix = "rank 1"});
  log::fact("model", "{} layers", 30);
  log::warning("slow");
  log::setup({.format = log::Format::kJson});
  log::fact("model", "x");
  log::setup({});
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, testing::ContainsRegex("20[0-9][0-9]-[0-9-]+T[0-9:]+[+-][0-9]+ model     rank 1: 30 layers\n"));
  EXPECT_THAT(text, HasSubstr("warning   rank 1: slow\n"));
  EXPECT_THAT(text, HasSubstr("\"stage\":\"model\",\"text\":\"x\"}"));
}

// As on a terminal of 30 columns whose text begins in the 11th.
TEST(Log, LongLinesGoOnUnderTheirText) {
  EXPECT_EQ(log::wrap("  0.1 s  a short line", 30, 10), "  0.1 s  a short line");
  EXPECT_EQ(log::wrap("  0.1 s x one two three four five six seven", 30, 10),
            "  0.1 s x one two three four\n          five six seven");
  EXPECT_EQ(log::wrap("  0.1 s x --a-word-that-is-longer-than-a-line and more", 30, 10),
            "  0.1 s x --a-word-that-is-longer-than-a-line\n          and more");
  EXPECT_EQ(log::wrap("", 30, 10), "");
}

TEST(NearestName, FindsTyposAndRefusesStrangers) {
  const std::vector<std::string> names = {"--port", "--host", "--tensor-parallel-size", "--max-model-len"};
  EXPECT_EQ(likely_name("--tensor-paralel-size", names), "--tensor-parallel-size");
  EXPECT_EQ(likely_name("--max-modellen", names), "--max-model-len");
  EXPECT_EQ(likely_name("--prot", names), "--port");
  EXPECT_EQ(likely_name("--completely-different", names), "");
  EXPECT_EQ(likely_name("--stop", std::vector<std::string>{"--help", "--prompt"}), "");
  EXPECT_EQ(nearest_name("--completely-different", names), "--max-model-len");
  EXPECT_EQ(nearest_name("x", {}), "");
}

}  // namespace
}  // namespace tutti
