// The program: picks the subcommand, turns errors into one line and an exit code.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "apps/argv.h"
#include "apps/commands.h"
#include "apps/flag_parser.h"
#include "base/error.h"
#include "base/log.h"
#include "base/nearest_name.h"
#include "cluster/node_facts.h"

namespace tutti {
namespace {

struct Command {
  const char* name;
  int (*run)(const Arguments&);
  const char* summary;
};

constexpr Command kCommands[] = {
    {"serve", run_serve, "serve a model through the OpenAI API, as the head of a cluster"},
    {"worker", run_worker, "give this node's ranks to a head elsewhere"},
    {"generate", run_generate, "complete one prompt, without a server"},
    {"complete", run_complete, "complete one prompt through a running server"},
    {"chat", run_chat, "ask a running server, in its chat template"},
    {"bench", run_bench, "measure a running server (bench serve), a model (bench latency, bench throughput) or links (bench comm)"},
    {"status", run_status, "what a cluster is doing"},
    {"token", run_token, "print the cluster token of this head"},
};

// Those of vLLM that are not here, and what to do instead.
constexpr std::pair<const char*, const char*> kElsewhere[] = {
    {"collect-env", "`tutti --version` and the first lines of `tutti serve` say what is installed"},
    {"run-batch", "send the requests of the file to `tutti serve`, many at once"},
    {"launch", "`tutti serve` starts the API server and its ranks"},
};

void print_usage() {
  std::printf("usage: tutti COMMAND ...\n\n");
  for (const Command& command : kCommands) std::printf("  %-9s %s\n", command.name, command.summary);
  std::printf("\ntutti COMMAND --help lists the flags of a command; tutti --version\n");
}

int fail(const Error& e) {
  const int code = static_cast<int>(e.exit_code());
  const std::string message = e.what();
  const size_t first_line = message.find('\n');
  const std::string text = message.substr(0, first_line);
  log::error("{}{} Exit {}", text, text.ends_with('?') || text.ends_with('.') ? "" : ".", code);
  size_t at = first_line;
  while (at != std::string::npos) {
    const size_t next = message.find('\n', at + 1);
    log::continuation(message.substr(at + 1, next == std::string::npos ? next : next - at - 1));
    at = next;
  }
  return code;
}

int run(const Arguments& all) {
  if (all.empty() || all[0] == "--help" || all[0] == "-h" || all[0] == "help") {
    print_usage();
    return static_cast<int>(all.empty() ? ExitCode::kConfig : ExitCode::kOk);
  }
  if (all[0] == "--version") {
    std::printf("tutti %s\n", build_id().c_str());
    return static_cast<int>(ExitCode::kOk);
  }
  const Arguments rest(all.begin() + 1, all.end());
  if (all[0] == "rank" && rest.size() == 2 && rest[0] == "--parent") return run_rank(std::atoi(rest[1].c_str()));
  std::vector<std::string> names;
  for (const Command& command : kCommands) {
    if (all[0] == command.name) return command.run(rest);
    names.emplace_back(command.name);
  }
  for (const auto& [known, instead] : kElsewhere) {
    if (all[0] == known) throw ConfigError("there is no `tutti " + all[0] + "`: " + instead);
  }
  const std::string near = likely_name(all[0], names);
  throw ConfigError(fmt::format("unknown command \"{}\"{}", all[0], near.empty() ? ": tutti --help lists all" : "; near: " + near));
}

}  // namespace
}  // namespace tutti

int main(int argc, char** argv) {
  try {
    return tutti::run(tutti::Arguments(argv + 1, argv + argc));
  } catch (const tutti::FlagParser::HelpShown&) {
    return 0;
  } catch (const tutti::Error& e) {
    return tutti::fail(e);
  } catch (const std::exception& e) {
    tutti::log::error("{}. This is a bug of tutti. Exit 3", e.what());
    return static_cast<int>(tutti::ExitCode::kChecks);
  }
}
