#include "server/port_owner.h"

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <system_error>

namespace tutti {
namespace {

namespace fs = std::filesystem;

// The inodes of the sockets that listen on `port`, from /proc/net/tcp: "sl local_address rem_address st ...
// inode".
std::set<std::string> listening_inodes(int port) {
  constexpr const char* kListen = "0A";
  std::set<std::string> inodes;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream in(table);
    std::string line;
    std::getline(in, line);
    while (std::getline(in, line)) {
      std::istringstream fields(line);
      std::string slot, local, remote, state, skip, inode;
      fields >> slot >> local >> remote >> state >> skip >> skip >> skip >> skip >> skip >> inode;
      const size_t colon = local.rfind(':');
      if (state != kListen || colon == std::string::npos) continue;
      if (std::stoi(local.substr(colon + 1), nullptr, 16) == port) inodes.insert("socket:[" + inode + "]");
    }
  }
  return inodes;
}

bool holds_one_of(const fs::path& process, const std::set<std::string>& sockets) {
  std::error_code ec;
  for (fs::directory_iterator fd(process / "fd", ec), end; !ec && fd != end; fd.increment(ec)) {
    std::error_code gone;
    if (sockets.count(fs::read_symlink(fd->path(), gone).string()) > 0) return true;
  }
  return false;
}

}  // namespace

std::string describe_port_owner(int port) {
  const std::set<std::string> sockets = listening_inodes(port);
  if (sockets.empty()) return "";
  std::error_code ec;
  for (fs::directory_iterator entry("/proc", ec), end; !ec && entry != end; entry.increment(ec)) {
    const std::string pid = entry->path().filename();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    if (!holds_one_of(entry->path(), sockets)) continue;
    std::string name;
    std::getline(std::ifstream(entry->path() / "comm"), name);
    return " by pid " + pid + (name.empty() ? "" : " (" + name + ")");
  }
  return "";
}

}  // namespace tutti
