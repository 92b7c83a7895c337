#include "runtime/kernel_choice_file.h"

#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"

namespace tutti {
namespace {

// kernels-nvidia-h200-132-multiprocessors-....json
std::string path_of(const CudaContext& cuda) {
  std::string name = "kernels-" + kernel_choices_key(cuda);
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? static_cast<char>(std::tolower(static_cast<unsigned char>(c))) : '-';
  name.erase(std::unique(name.begin(), name.end(), [](char a, char b) { return a == '-' && b == '-'; }), name.end());
  return state_folder() + "/" + name + ".json";
}

// The first rank's text.
std::string share(std::string text, Communicator& tp) {
  auto size = static_cast<int64_t>(text.size());
  tp.broadcast(&size, sizeof size, 0);
  text.resize(static_cast<size_t>(size));
  if (size > 0) tp.broadcast(text.data(), text.size(), 0);
  return text;
}

std::string read(const CudaContext& cuda) {
  try {
    return read_file(path_of(cuda));
  } catch (const Error&) {  // no file yet, or no folder for it
    return "";
  }
}

}  // namespace

void recall_kernel_choices(CudaContext& cuda, Communicator& tp) {
  const std::string text = share(tp.rank() == 0 ? read(cuda) : "", tp);
  if (!text.empty()) take_kernel_choices(cuda, text, /*all=*/true);
}

void keep_kernel_choices(CudaContext& cuda, Communicator& tp) {
  const std::string before = tp.rank() == 0 ? read(cuda) : "";
  if (!before.empty()) take_kernel_choices(cuda, before, /*all=*/false);  // another model's, or another stage's
  const std::string text = share(tp.rank() == 0 ? kernel_choices(cuda) : "", tp);
  if (tp.rank() != 0) return take_kernel_choices(cuda, text, /*all=*/true);
  try {
    if (before != text) write_file(path_of(cuda), text);
  } catch (const Error& error) {
    log::note("the kernels that were found fastest are not kept for the next start: {}", error.what());
  }
}

}  // namespace tutti
