#include "text/jinja_resolver.h"

#include <memory>
#include <set>

#include "text/jinja_filters.h"
#include "text/jinja_lexer.h"
#include "text/jinja_scope.h"
#include "text/jinja_walk.h"

namespace tutti::jinja {
namespace {

// Notes the names of one scope, without going into the scopes inside it.
class Analyzer {
 public:
  explicit Analyzer(Scope& scope) : scope_(scope) {}

  void visit(Expr& e) {
    if (e.kind == ExprKind::kName && e.is_store) {
      scope_.store(e.name);
    } else if (e.kind == ExprKind::kName || e.kind == ExprKind::kNamespaceAttr) {
      scope_.load(e.name);
    }
    for_each_part(e, [this](Expr& part) { visit(part); });
  }

  void visit(Body& body) {
    for (auto& s : body) visit(*s);
  }

  void declare(Expr& target) {
    if (target.kind == ExprKind::kName) scope_.declare_parameter(target.name);
    for_each_part(target, [this](Expr& part) { declare(part); });
  }

 private:
  void visit(Stmt& s) {
    switch (s.kind) {
      case StmtKind::kOutput:
        for (auto& e : s.exprs) visit(*e);
        break;
      case StmtKind::kFor:
        visit(*s.iter);
        break;
      case StmtKind::kIf:
        visit_if(s);
        break;
      case StmtKind::kSet:
        visit(*s.value);
        visit(*s.target);
        break;
      case StmtKind::kSetBlock:
        visit(*s.target);
        break;
      case StmtKind::kMacro:
        scope_.store(s.name);
        break;
      case StmtKind::kCallBlock:
        if (s.value) visit(*s.value);
        break;
      case StmtKind::kFilterBlock:
        visit(*s.filter);
        break;
      case StmtKind::kWith:
        for (size_t i = 1; i < s.exprs.size(); i += 2) visit(*s.exprs[i]);
        break;
      default:
        break;
    }
  }

  // Branches after the first, with their tests, count as one; so does the else.
  void visit_if(Stmt& s) {
    visit(*s.branches[0].test);
    const Scope::Symbols before = scope_.symbols();
    std::vector<Scope::Symbols> after;
    const auto finish = [&] {
      after.push_back(scope_.symbols());
      scope_.set_symbols(before);
    };
    visit(s.branches[0].body);
    finish();
    for (size_t i = 1; i < s.branches.size(); ++i) visit_elif(s.branches[i]);
    finish();
    visit(s.else_body);
    finish();
    scope_.merge_branches(after);
  }

  void visit_elif(Branch& branch) {
    visit(*branch.test);
    const Scope::Symbols before = scope_.symbols();
    visit(branch.body);
    const Scope::Symbols after = scope_.symbols();
    scope_.set_symbols(before);
    scope_.merge_branches({after});
  }

  Scope& scope_;
};

// Which of `names` a body uses without assigning them first.
class Undeclared {
 public:
  Undeclared(std::set<std::string> names, Body& body) : names_(std::move(names)) {
    for (auto& s : body) visit(*s);
  }
  bool has(const std::string& name) const { return found_.count(name) > 0; }

 private:
  void visit(Expr& e) {
    if (e.kind == ExprKind::kName) {
      if (!e.is_store && names_.count(e.name) > 0) {
        found_.insert(e.name);
      } else {
        names_.erase(e.name);
      }
    }
    for_each_part(e, [this](Expr& part) { visit(part); });
  }
  void visit(Stmt& s) {
    if (s.kind == StmtKind::kBlock) return;
    for_each_part(s, [this](auto& part) { visit(part); });
  }

  std::set<std::string> names_, found_;
};

class Resolver {
 public:
  explicit Resolver(Template& parsed) : template_(parsed) {}

  void run() {
    Function root;
    Scope scope(&root, nullptr);
    Analyzer(scope).visit(template_.body);
    visit(template_.body, scope, {.top_level = true});
    template_.loads = scope.loads();
    template_.num_slots = root.num_slots;
  }

 private:
  struct Where {
    bool top_level = false;
    bool conditional = false;  // inside an if: an unknown filter only counts when it runs
  };

  [[noreturn]] void error(size_t at, const std::string& message) {
    syntax_error(template_.source, at, message);
  }

  void visit(Body& body, Scope& scope, Where where) {
    for (auto& s : body) visit(*s, scope, where);
  }

  void visit(Expr& e, Scope& scope, Where where) {
    if (e.kind == ExprKind::kName || e.kind == ExprKind::kNamespaceAttr) {
      if (const auto var = scope.find(e.name)) e.var = *var;
    }
    if (!where.conditional && e.kind == ExprKind::kFilter && find_filter(e.name) == nullptr) {
      error(e.at, "there is no filter " + quote(e.name));
    }
    if (!where.conditional && e.kind == ExprKind::kTest && find_test(e.name) == nullptr) {
      error(e.at, "there is no test " + quote(e.name));
    }
    if (e.kind == ExprKind::kConditional) where.conditional = true;
    for_each_part(e, [&](Expr& part) { visit(part, scope, where); });
  }

  void visit(Stmt& s, Scope& scope, Where where) {
    s.exported = where.top_level;
    switch (s.kind) {
      case StmtKind::kText:
        break;
      case StmtKind::kOutput:
        for (auto& e : s.exprs) visit(*e, scope, where);
        break;
      case StmtKind::kFor:
        visit_for(s, scope, where);
        break;
      case StmtKind::kIf:
        where.conditional = true;
        for (Branch& branch : s.branches) {
          visit(*branch.test, scope, where);
          visit(branch.body, scope, where);
        }
        visit(s.else_body, scope, where);
        break;
      case StmtKind::kSet:
        check_not_loop(*s.target, scope);
        visit(*s.value, scope, where);
        visit(*s.target, scope, where);
        break;
      case StmtKind::kSetBlock:
        visit_set_block(s, scope, where);
        break;
      case StmtKind::kMacro:
        s.var = *scope.find(s.name);
        visit_function(s, scope);
        break;
      case StmtKind::kCallBlock:
        if (s.value) visit(*s.value, scope, where);
        visit_function(s, scope);
        break;
      case StmtKind::kFilterBlock:
        visit_filter_block(s, scope);
        break;
      case StmtKind::kWith:
        visit_with(s, scope, where);
        break;
      case StmtKind::kBlock:
        visit_block(s);
        break;
      case StmtKind::kBreak:
      case StmtKind::kContinue:
        if (scope.function()->loops == 0) {
          error(s.at, std::string("\"") + (s.kind == StmtKind::kBreak ? "break" : "continue") +
                          "\" outside a loop");
        }
        break;
    }
  }

  void check_not_loop(const Expr& target, Scope& scope) {
    if (target.kind == ExprKind::kName && target.name == "loop" && loop_depth_ > 0) {
      error(target.at, "cannot assign to the special variable \"loop\" inside a loop");
    }
    for (const auto& item : target.operands) check_not_loop(*item, scope);
  }

  void visit_for(Stmt& s, Scope& scope, Where where) {
    visit(*s.iter, scope, where);
    ++loop_depth_;
    check_not_loop(*s.target, scope);
    Function inner;
    Function* function = scope.function();
    if (s.recursive) {
      function->has_inner = true;
      inner = {function, function->depth + 1};
      function = &inner;
    }
    Scope loop(function, &scope), otherwise(function, &scope), test(function, &scope);
    s.loop_slot = loop.declare_parameter("loop");
    Analyzer(loop).declare(*s.target);
    Analyzer(loop).visit(s.body);
    Analyzer(otherwise).visit(s.else_body);
    if (s.test) {
      // Filtering looks ahead of the loop, so it has its own copy of the loop's variables.
      Analyzer(test).declare(*s.target);
      Analyzer(test).visit(*s.test);
      visit(*s.test, test, {});
      s.params.push_back(clone_target(*s.target));
      visit(*s.params[0], test, {});
    }
    visit(*s.target, loop, {});
    ++function->loops;
    visit(s.body, loop, {});
    --function->loops;
    visit(s.else_body, otherwise, {});
    s.loads = loop.loads();
    s.else_loads = otherwise.loads();
    s.test_loads = test.loads();
    s.num_slots = inner.num_slots;
    s.keeps_activation = inner.has_inner;
    --loop_depth_;
  }

  static ExprPtr clone_target(const Expr& e) {
    auto copy = std::make_unique<Expr>(e.kind, e.at);
    copy->name = e.name;
    copy->is_store = e.is_store;
    for (const auto& item : e.operands) copy->operands.push_back(clone_target(*item));
    return copy;
  }

  void visit_set_block(Stmt& s, Scope& scope, Where where) {
    check_not_loop(*s.target, scope);
    visit(*s.target, scope, where);
    Scope inner(scope.function(), &scope);
    Analyzer(inner).visit(s.body);
    if (s.filter) Analyzer(inner).visit(*s.filter);
    visit(s.body, inner, {});
    if (s.filter) visit(*s.filter, inner, {});
    s.loads = inner.loads();
  }

  void visit_filter_block(Stmt& s, Scope& scope) {
    Scope inner(scope.function(), &scope);
    Analyzer(inner).visit(s.body);
    Analyzer(inner).visit(*s.filter);
    visit(s.body, inner, {});
    visit(*s.filter, inner, {});
    s.loads = inner.loads();
  }

  void visit_with(Stmt& s, Scope& scope, Where where) {
    Scope inner(scope.function(), &scope);
    for (size_t i = 0; i < s.exprs.size(); i += 2) Analyzer(inner).declare(*s.exprs[i]);
    Analyzer(inner).visit(s.body);
    for (size_t i = 0; i < s.exprs.size(); i += 2) {
      visit(*s.exprs[i], inner, where);
      visit(*s.exprs[i + 1], scope, where);
    }
    visit(s.body, inner, {});
    s.loads = inner.loads();
  }

  // A macro, or the caller of a call block.
  void visit_function(Stmt& s, Scope& scope) {
    scope.function()->has_inner = true;
    Function function{scope.function(), scope.function()->depth + 1};
    Scope inner(&function, &scope);
    const auto analyze = [&] {
      for (auto& param : s.params) Analyzer(inner).declare(*param);
      for (auto& value : s.defaults) Analyzer(inner).visit(*value);
      Analyzer(inner).visit(s.body);
    };
    analyze();
    const Undeclared special({"caller", "kwargs", "varargs"}, s.body);
    const auto declares = [&](const char* name) {
      for (const auto& param : s.params) {
        if (param->name == name) return true;
      }
      return false;
    };
    if (special.has("caller")) {
      if (!declares("caller")) {
        s.caller_slot = inner.declare_parameter("caller");
      } else {
        check_caller_default(s);
      }
    }
    if (special.has("kwargs") && !declares("kwargs"))
      s.kwargs_slot = inner.declare_parameter("kwargs");
    if (special.has("varargs") && !declares("varargs"))
      s.varargs_slot = inner.declare_parameter("varargs");
    analyze();
    for (auto& param : s.params) visit(*param, inner, {});
    for (auto& value : s.defaults) visit(*value, inner, {});
    visit(s.body, inner, {});
    s.loads = inner.loads();
    s.num_slots = function.num_slots;
    s.keeps_activation = function.has_inner;
  }

  void check_caller_default(const Stmt& s) {
    const size_t first_default = s.params.size() - s.defaults.size();
    for (size_t i = 0; i < first_default; ++i) {
      if (s.params[i]->name == "caller") {
        error(s.params[i]->at, "the parameter \"caller\" must be left out or have a default");
      }
    }
  }

  void visit_block(Stmt& s) {
    if (!blocks_.insert(s.name).second) error(s.at, "block " + quote(s.name) + " is defined twice");
    Function function;
    Scope inner(&function, nullptr);
    Analyzer(inner).visit(s.body);
    const int outer_loops = std::exchange(loop_depth_, 0);
    visit(s.body, inner, {});
    loop_depth_ = outer_loops;
    s.loads = inner.loads();
    s.num_slots = function.num_slots;
    s.keeps_activation = function.has_inner;
  }

  Template& template_;
  std::set<std::string> blocks_;
  int loop_depth_ = 0;
};

}  // namespace

void resolve(Template& parsed) { Resolver(parsed).run(); }

}  // namespace tutti::jinja
