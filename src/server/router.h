// Which handler answers a request; before it: keys, browsers' cross-origin rules and the counting of
// requests; after it: what it throws becomes an error answer. Built once, then const, called on every event
// loop.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "server/http.h"
#include "server/metrics.h"
#include "server/server_config.h"

namespace tutti {

class Router {
 public:
  enum class Access { kKey, kOpen };  // kOpen: answered without an API key

  Router(const ServerConfig& config, Metrics& metrics) : config_(config), metrics_(metrics) {}

  // A path that ends in "/" also takes everything under it.
  void add(const std::string& method, const std::string& path, HttpHandler handler,
           Access access = Access::kKey);
  void handle(const std::shared_ptr<HttpExchange>& exchange) const;

 private:
  struct Route {
    HttpHandler handler;
    Access access;
  };
  using Methods = std::map<std::string, Route>;

  void dispatch(const std::shared_ptr<HttpExchange>& exchange, const Methods* methods) const;
  const Methods* find(std::string_view path, std::string* route) const;
  bool authorized(const HttpRequest& request) const;
  // Adds the headers of an allowed origin. True when the request was a preflight, which is then answered.
  bool handle_cors(HttpExchange& exchange) const;
  std::string path_of(const HttpRequest& request) const;

  const ServerConfig& config_;
  Metrics& metrics_;
  std::map<std::string, Methods, std::less<>> routes_;
};

}  // namespace tutti
