// The typed errors of the program. A bug in our own code is a CHECK (check.h); an expected "no" is an optional or a
// bool; everything else that ends an operation is one of these. They are caught in three places only: the HTTP
// handler, EngineCore::step and Worker::run (and main(), which turns them into an exit code).
//
// A message names the thing, what was expected, what was found and what to do.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace tutti {

// Exit codes of the program (docs/errors.md).
enum class ExitCode : int {
  kOk = 0,
  kFindings = 1,     // a check command found something
  kConfig = 2,       // flags, configuration, model files
  kChecks = 3,       // the machine cannot do this safely
  kNotJoined = 4,    // others did not come in time, or refused us
  kClusterLost = 5,  // a running cluster was lost
};

class Error : public std::runtime_error {
 public:
  Error(const std::string& message, ExitCode code) : std::runtime_error(message), exit_code_(code) {}
  ExitCode exit_code() const { return exit_code_; }

 private:
  ExitCode exit_code_;
};

// A client's request that cannot be served as written. `param` names the field; `http_status` is 400 unless said.
class InvalidRequest : public Error {
 public:
  explicit InvalidRequest(const std::string& message, std::string param = "", int http_status = 400)
      : Error(message, ExitCode::kConfig), param_(std::move(param)), http_status_(http_status) {}
  const std::string& param() const { return param_; }
  int http_status() const { return http_status_; }

 private:
  std::string param_;
  int http_status_;
};

// Flags, model configuration or model contents that cannot work.
class ConfigError : public Error {
 public:
  explicit ConfigError(const std::string& message) : Error(message, ExitCode::kConfig) {}
};

// A file or a socket that could not be read or written, or whose bytes are not what its format demands.
class IoError : public Error {
 public:
  explicit IoError(const std::string& message) : Error(message, ExitCode::kConfig) {}
};

// The device (GPU, CPU memory) failed or is too small.
class DeviceError : public Error {
 public:
  explicit DeviceError(const std::string& message) : Error(message, ExitCode::kChecks) {}
};

// Somebody did not come, or refused us, before the cluster was up.
class JoinError : public Error {
 public:
  explicit JoinError(const std::string& message) : Error(message, ExitCode::kNotJoined) {}
};

// A peer is dead, late or cut off while the cluster runs. The message names the rank, the phase and the link.
class CommError : public Error {
 public:
  explicit CommError(const std::string& message, int peer = -1)
      : Error(message, ExitCode::kClusterLost), peer_(peer) {}
  int peer() const { return peer_; }  // rank inside the group, -1 when unknown

 private:
  int peer_;
};

}  // namespace tutti
