#include "text/jinja_scope.h"

namespace tutti::jinja {

int Scope::define(const std::string& name, ScopeLoad::Kind kind, VarRef from) {
  const auto [it, is_new] = slots_.try_emplace(name, function_->num_slots);
  if (is_new) ++function_->num_slots;
  const int slot = it->second;
  symbols_.refs[name] = slot;
  symbols_.loads[slot] = ScopeLoad{kind, slot, name, from};
  return slot;
}

int Scope::declare_parameter(const std::string& name) {
  symbols_.stores.insert(name);
  return define(name, ScopeLoad::Kind::kParameter);
}

void Scope::store(const std::string& name) {
  symbols_.stores.insert(name);
  if (symbols_.refs.count(name) > 0) return;
  if (const auto outer = find_outside(name)) {
    define(name, ScopeLoad::Kind::kCopy, *outer);
  } else {
    define(name, ScopeLoad::Kind::kUnset);
  }
}

void Scope::load(const std::string& name) {
  if (!find(name)) define(name, ScopeLoad::Kind::kContext);
}

void Scope::merge_branches(const std::vector<Symbols>& branches) {
  std::set<std::string> stores;
  for (const Symbols& branch : branches) stores.insert(branch.stores.begin(), branch.stores.end());
  for (const std::string& name : symbols_.stores) stores.erase(name);
  for (const Symbols& branch : branches) {
    for (const auto& [name, slot] : branch.refs) symbols_.refs[name] = slot;
    for (const auto& [slot, load] : branch.loads) symbols_.loads[slot] = load;
    symbols_.stores.insert(branch.stores.begin(), branch.stores.end());
  }
  // What only some branches assign keeps its value from outside in the others.
  for (const std::string& name : stores) {
    if (const auto outer = find_outside(name)) {
      define(name, ScopeLoad::Kind::kCopy, *outer);
    } else {
      define(name, ScopeLoad::Kind::kContext);
    }
  }
}

std::optional<VarRef> Scope::find_for(const Function* reader, const std::string& name) const {
  const auto it = symbols_.refs.find(name);
  if (it != symbols_.refs.end()) return VarRef{reader->depth - function_->depth, it->second};
  return parent_ != nullptr ? parent_->find_for(reader, name) : std::nullopt;
}

std::optional<VarRef> Scope::find_outside(const std::string& name) const {
  return parent_ != nullptr ? parent_->find_for(function_, name) : std::nullopt;
}

std::optional<VarRef> Scope::find(const std::string& name) const {
  return find_for(function_, name);
}

std::vector<ScopeLoad> Scope::loads() const {
  std::vector<ScopeLoad> out;
  for (const auto& [slot, load] : symbols_.loads) out.push_back(load);
  return out;
}

}  // namespace tutti::jinja
