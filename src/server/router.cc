#include "server/router.h"

#include <openssl/crypto.h>

#include <algorithm>
#include <utility>

#include "server/openai_response.h"

namespace tutti {
namespace {

std::string join(const std::vector<std::string>& items) {
  std::string out;
  for (const std::string& item : items) out += (out.empty() ? "" : ", ") + item;
  return out;
}

bool contains(const std::vector<std::string>& items, std::string_view item) {
  return std::find(items.begin(), items.end(), item) != items.end();
}

// Takes the same time wherever the difference is.
bool same_secret(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace

void Router::add(const std::string& method, const std::string& path, HttpHandler handler, Access access) {
  routes_[path].insert_or_assign(method, Route{std::move(handler), access});
}

std::string Router::path_of(const HttpRequest& request) const {
  const std::string& root = config_.root_path;
  if (!root.empty() && request.path.starts_with(root) && request.path.size() > root.size()) {
    return request.path.substr(root.size());
  }
  return request.path;
}

const Router::Methods* Router::find(std::string_view path, std::string* route) const {
  auto it = routes_.find(path);
  while (it == routes_.end() && !path.empty()) {
    path = path.substr(0, path.size() - 1);  // without a slash that has been tried
    path = path.substr(0, path.rfind('/') + 1);
    it = routes_.find(path);
  }
  if (it == routes_.end()) return nullptr;
  *route = it->first;
  return &it->second;
}

bool Router::authorized(const HttpRequest& request) const {
  if (config_.api_keys.empty()) return true;
  const std::string* header = request.header("authorization");
  if (header == nullptr) return false;
  constexpr std::string_view kBearer = "bearer ";
  if (header->size() < kBearer.size() || !std::equal(kBearer.begin(), kBearer.end(), header->begin(),
                                                     [](char a, char b) { return a == (b | 0x20); })) {
    return false;
  }
  const std::string_view key = std::string_view(*header).substr(kBearer.size());
  bool found = false;
  for (const std::string& known : config_.api_keys) found |= same_secret(key, known);
  return found;
}

bool Router::handle_cors(HttpExchange& exchange) const {
  const CorsConfig& cors = config_.cors;
  const std::string* origin = exchange.request().header("origin");
  if (cors.allowed_origins.empty() || origin == nullptr) return false;
  const bool any = contains(cors.allowed_origins, "*");
  if (!any && !contains(cors.allowed_origins, *origin)) return false;
  // With credentials browsers refuse "*".
  exchange.add_header("access-control-allow-origin", any && !cors.allow_credentials ? "*" : *origin);
  exchange.add_header("vary", "Origin");
  if (cors.allow_credentials) exchange.add_header("access-control-allow-credentials", "true");
  const HttpRequest& request = exchange.request();
  if (request.method != "OPTIONS" || request.header("access-control-request-method") == nullptr) return false;
  const bool any_method = contains(cors.allowed_methods, "*");
  exchange.add_header("access-control-allow-methods",
                      any_method ? "GET, POST, HEAD, OPTIONS" : join(cors.allowed_methods));
  const std::string* wanted = request.header("access-control-request-headers");
  const bool any_header = contains(cors.allowed_headers, "*");
  exchange.add_header("access-control-allow-headers",
                      any_header && wanted != nullptr ? *wanted : join(cors.allowed_headers));
  exchange.add_header("access-control-max-age", "600");
  exchange.respond({.status = 204});
  return true;
}

void Router::handle(const std::shared_ptr<HttpExchange>& exchange) const {
  std::string route = "none";
  const Methods* methods = find(path_of(exchange->request()), &route);
  const auto begin = Clock::now();
  exchange->on_finish([this, begin, route, method = exchange->request().method](int status) {
    const bool known = method == "GET" || method == "POST" || method == "HEAD" || method == "OPTIONS";
    metrics_.http_request(known ? method : "other", route, status,
                          std::chrono::duration<double>(Clock::now() - begin).count());
  });
  try {
    dispatch(exchange, methods);
  } catch (...) {
    HttpResponse response = current_exception_response(exchange->request());
    if (!exchange->started()) exchange->respond(std::move(response));
  }
}

void Router::dispatch(const std::shared_ptr<HttpExchange>& exchange, const Methods* methods) const {
  if (handle_cors(*exchange)) return;
  const HttpRequest& request = exchange->request();
  const std::string method = request.method == "HEAD" ? "GET" : request.method;
  const Route* route = nullptr;
  if (methods != nullptr) {
    const auto it = methods->find(method);
    if (it != methods->end()) route = &it->second;
  }
  // Without a key not even the list of routes can be learnt.
  if ((route == nullptr || route->access == Access::kKey) && !authorized(request)) {
    exchange->respond(error_response(401, "a valid API key is needed: send `Authorization: Bearer KEY`"));
  } else if (methods == nullptr) {
    exchange->respond(error_response(404, "no such route: " + request.method + " " + request.path));
  } else if (route == nullptr) {
    std::vector<std::string> allowed;
    for (const auto& [name, unused] : *methods) allowed.push_back(name);
    exchange->add_header("allow", join(allowed));
    exchange->respond(error_response(405, request.path + " does not take " + request.method));
  } else {
    route->handler(exchange);
  }
}

}  // namespace tutti
