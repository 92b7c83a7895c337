#ifdef TUTTI_UCX
#include "comm/ucx_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "base/error.h"

namespace tutti {
namespace {

template <typename Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  if (function == nullptr) throw ConfigError(fmt::format("libucp.so.0 has no {}: UCX 1.10 or later is needed", name));
}

UcxLibrary open_library() {
  void* library = ::dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw ConfigError(fmt::format("--comm-transport ucx: {}. Install UCX (Debian: libucx0) on every node", ::dlerror()));
  }
  UcxLibrary u{};
  find(library, "ucp_init_version", u.init_version);
  find(library, "ucp_cleanup", u.cleanup);
  find(library, "ucp_config_read", u.config_read);
  find(library, "ucp_config_modify", u.config_modify);
  find(library, "ucp_config_release", u.config_release);
  find(library, "ucp_worker_create", u.worker_create);
  find(library, "ucp_worker_destroy", u.worker_destroy);
  find(library, "ucp_worker_get_address", u.worker_get_address);
  find(library, "ucp_worker_release_address", u.worker_release_address);
  find(library, "ucp_worker_progress", u.worker_progress);
  find(library, "ucp_ep_create", u.ep_create);
  find(library, "ucp_ep_close_nbx", u.ep_close_nbx);
  find(library, "ucp_tag_send_nbx", u.tag_send_nbx);
  find(library, "ucp_tag_recv_nbx", u.tag_recv_nbx);
  find(library, "ucp_tag_probe_nb", u.tag_probe_nb);
  find(library, "ucp_tag_msg_recv_nbx", u.tag_msg_recv_nbx);
  find(library, "ucp_request_check_status", u.request_check_status);
  find(library, "ucp_request_cancel", u.request_cancel);
  find(library, "ucp_request_free", u.request_free);
  find(library, "ucs_status_string", u.status_string);
  return u;
}

}  // namespace

const UcxLibrary& ucx_library() {
  static const UcxLibrary library = open_library();
  return library;
}

}  // namespace tutti
#endif
