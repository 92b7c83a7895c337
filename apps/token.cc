// `tutti token`: the secret that lets other nodes join this head. To a terminal only; elsewhere the place where it is kept.
#include <unistd.h>

#include <cstdio>

#include "apps/commands.h"
#include "apps/flag_parser.h"
#include "base/error.h"
#include "cluster/token.h"

namespace tutti {

int run_token(const Arguments& arguments) {
  FlagParser p("tutti token", "Prints the cluster token of this head; makes one when there is none yet.");
  p.parse(arguments);
  const ClusterToken token = head_token({});
  if (::isatty(STDOUT_FILENO) == 1) {
    std::printf("%s\n", token.text().c_str());
  } else {
    std::printf("%s\n", token_path().c_str());
    std::fprintf(stderr, "this is the file that holds the token: the token itself is printed to a terminal only\n");
  }
  return static_cast<int>(ExitCode::kOk);
}

}  // namespace tutti
