// Runs a fuzz target once on every file of the folders given: the seeds, in builds without
// libFuzzer.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <vector>

#include "base/file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int main(int argc, char** argv) {
  std::vector<std::string> files;
  for (int i = 1; i < argc; ++i) {
    for (const auto& entry : std::filesystem::directory_iterator(argv[i]))
      files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  for (const std::string& file : files) {
    std::printf("%s\n", file.c_str());
    std::fflush(stdout);  // the last line names the culprit of a crash
    const std::string contents = tutti::read_file(file);
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(contents.data()), contents.size());
  }
  if (files.empty()) std::fprintf(stderr, "no seeds found\n");
  return files.empty() ? 1 : 0;
}
