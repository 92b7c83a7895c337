// The subcommands of the program. Each parses its own flags, runs on the main thread and returns the exit code; errors
// leave as exceptions, which main() turns into one line and an exit code.
#pragma once

#include <string>
#include <vector>

namespace tutti {

using Arguments = std::vector<std::string>;  // after the subcommand's name

int run_serve(const Arguments& arguments);
int run_worker(const Arguments& arguments);
int run_generate(const Arguments& arguments);
int run_complete(const Arguments& arguments);
int run_chat(const Arguments& arguments);
int run_bench(const Arguments& arguments);
int run_status(const Arguments& arguments);
int run_token(const Arguments& arguments);
int run_rank(int parent_pid);

}  // namespace tutti
