// The symbol tables of the resolver: which names a scope reads and assigns, and the slots they get.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "text/jinja_ast.h"

namespace tutti::jinja {

// What has an activation of its own when it runs: the template, a macro, a call block, a recursive
// loop, a block.
struct Function {
  Function* outer = nullptr;
  int depth = 0;
  int num_slots = 0;
  bool has_inner = false;
  int loops = 0;  // loops that the statement being resolved is inside of
};

// The body of a loop, a macro, a with tag and so on. A branch of an if is no scope of its own.
class Scope {
 public:
  Scope(Function* function, Scope* parent) : function_(function), parent_(parent) {}

  // First, every name of the scope is noted in the order of the source ...
  int declare_parameter(const std::string& name);
  void store(const std::string& name);
  void load(const std::string& name);
  // ... where each branch of an if starts from the state before the if, and the branches are merged
  // after it.
  struct Symbols {
    std::map<std::string, int> refs;  // name -> slot
    std::map<int, ScopeLoad> loads;
    std::set<std::string> stores;
  };
  Symbols symbols() const { return symbols_; }
  void set_symbols(Symbols symbols) { symbols_ = std::move(symbols); }
  void merge_branches(const std::vector<Symbols>& branches);

  // Then names can be looked up, from this scope outwards.
  std::optional<VarRef> find(const std::string& name) const;
  std::vector<ScopeLoad> loads() const;
  Function* function() const { return function_; }
  Scope* parent() const { return parent_; }

 private:
  int define(const std::string& name, ScopeLoad::Kind kind, VarRef from = {});
  std::optional<VarRef> find_outside(const std::string& name) const;
  std::optional<VarRef> find_for(const Function* reader, const std::string& name) const;

  Function* function_;
  Scope* parent_;
  std::map<std::string, int> slots_;  // every slot ever given out here; branches share them
  Symbols symbols_;
};

}  // namespace tutti::jinja
