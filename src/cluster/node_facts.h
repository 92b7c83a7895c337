// What a node says about itself when it joins: facts that must be equal on all nodes, and facts for people.
#pragma once

#include <string>
#include <vector>

namespace tutti {

struct Fact {
  std::string name;   // "build"
  std::string value;  // "0.1.0 (7c1f9e2)"
  bool operator==(const Fact&) const = default;
};

// "0.1.0 (7c1f9e2)": the version and the linker's id of this very executable.
std::string build_id();

// The facts that the join handshake compares: build, protocol, processor features that choose kernels.
std::vector<Fact> comparable_facts();

struct NodeSummary {
  std::string name;       // the host's name, without its domain
  std::string processor;  // "Intel Xeon Platinum 8488C"
  int cores = 0;          // that this process may use
  double memory_gib = 0;  // of the node, or of the control group when that is less
  std::string machine;    // the same for processes that reach each other through 127.0.0.1
};
NodeSummary summarize_node();

// Lines of a two-column table of the facts that differ, or "" when all agree. Columns are named in the first line.
std::vector<std::string> difference_table(const std::string& left_name, const std::vector<Fact>& left,
                                          const std::string& right_name, const std::vector<Fact>& right);

}  // namespace tutti
