// Admission, failures, shutdown, keys and health: what operators see.
#include "server/server.h"

#include <gtest/gtest.h>

#include "server/testing/test_server.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;

Json request(int max_tokens, bool stream = false) {
  return {{"prompt", "say"}, {"max_tokens", max_tokens}, {"stream", stream}};
}

TEST(Server, HealthReadyLoadMetrics) {
  TestServer server;
  EXPECT_EQ(server.get("/health").status, 200);
  EXPECT_EQ(server.get("/ready").status, 200);
  EXPECT_EQ(server.get("/health?deep").status, 200);
  EXPECT_EQ(server.get("/health_generate").status, 200);
  EXPECT_EQ(server.get("/load").json()["server_load"], 0);
  server.post("/v1/completions", request(5));
  const ClientResponse metrics = server.get("/metrics");
  EXPECT_TRUE(metrics.headers.at("content-type").starts_with("text/plain; version=0.0.4"));
  for (const char* line :
       {"tutti:generation_tokens_total{engine=\"0\",model_name=\"test-model\"} 6",
        "vllm:generation_tokens_total{engine=\"0\",model_name=\"test-model\"} 6",
        "vllm:num_requests_running{", "vllm:kv_cache_usage_perc{",
        "vllm:time_to_first_token_seconds_bucket{engine=\"0\",model_name=\"test-model\",le=\"0.001\"}",
        "vllm:request_success_total{engine=\"0\",finished_reason=\"length\",model_name=\"test-model\"} 2",
        "vllm:e2e_request_latency_seconds_count", "vllm:request_queue_time_seconds_count",
        "vllm:iteration_tokens_total_bucket",
        "http_requests_total{handler=\"/v1/completions\",method=\"POST\",status=\"2xx\"} 1",
        "process_resident_memory_bytes "}) {
    EXPECT_NE(metrics.body.find(line), std::string::npos) << line << "\n" << metrics.body;
  }
}

TEST(Server, KeysCoverEveryRouteButHealthAndReady) {
  TestServer::Options options;
  options.config.api_keys = {"first", "second"};
  TestServer server(options);
  EXPECT_EQ(server.get("/health").status, 200);
  EXPECT_EQ(server.get("/ready").status, 200);
  for (const char* path :
       {"/v1/models", "/metrics", "/load", "/version", "/health_generate", "/nothing", "/tokenize"}) {
    const ClientResponse response = server.get(path);
    EXPECT_EQ(response.status, 401) << path;
    EXPECT_EQ(response.json()["error"]["code"], 401);
    EXPECT_EQ(response.headers.at("www-authenticate"), "Bearer");
  }
  EXPECT_EQ(server.get("/v1/models", "authorization: Bearer wrong\r\n").status, 401);
  EXPECT_EQ(server.get("/v1/models", "authorization: Basic first\r\n").status, 401);
  EXPECT_EQ(server.get("/v1/models", "authorization: Bearer first\r\n").status, 200);
  EXPECT_EQ(server.post("/v1/completions", request(1), "authorization: bearer second\r\n").status, 200);
  EXPECT_EQ(server.post("/v1/completions", request(1)).status, 401);
}

TEST(Server, CorsOnlyWhenAsked) {
  const std::string preflight =
      "OPTIONS /v1/models HTTP/1.1\r\norigin: http://a\r\naccess-control-request-method: GET\r\n\r\n";
  {
    TestServer server;
    TestClient client(server.port());
    client.send(preflight);
    EXPECT_EQ(client.read_response().status, 405);
    EXPECT_FALSE(
        server.get("/v1/models", "origin: http://a\r\n").headers.contains("access-control-allow-origin"));
  }
  TestServer::Options options;
  options.config.cors.allowed_origins = {"http://a"};
  options.config.api_keys = {"k"};
  TestServer server(options);
  TestClient client(server.port());
  client.send(preflight);
  const ClientResponse response = client.read_response();
  EXPECT_EQ(response.status, 204);
  EXPECT_EQ(response.headers.at("access-control-allow-origin"), "http://a");
  EXPECT_FALSE(server.get("/health", "origin: http://b\r\n").headers.contains("access-control-allow-origin"));
  EXPECT_TRUE(server.get("/health", "origin: http://a\r\n").headers.contains("access-control-allow-origin"));
}

TEST(Server, AFullQueueIs429) {
  TestServer::Options options;
  options.scheduler.max_queue_size = 3;
  TestServer server(options);
  server.executor().paused = true;
  std::vector<std::unique_ptr<TestClient>> clients;
  int refused = 0;
  for (int i = 0; i < 6; ++i) {
    clients.push_back(std::make_unique<TestClient>(server.port()));
    clients.back()->send(TestClient::post_text("/v1/completions", dump_json(request(1, true))));
    const ClientResponse response = clients.back()->read_response(/*head_only=*/true);
    if (response.status == 429) {
      ++refused;
      EXPECT_EQ(response.headers.at("retry-after"), "1");
    }
  }
  EXPECT_GE(refused, 1);
  // All or none of a request's sequences.
  Json many = request(1);
  many["n"] = 3;
  EXPECT_EQ(server.post("/v1/completions", many).status, 429);
  server.executor().paused = false;
  EXPECT_TRUE(eventually([&] { return server.post("/v1/completions", request(1)).status == 200; }));
}

// Trying again would not help.
TEST(Server, ARequestLargerThanTheQueueIs400) {
  TestServer::Options options;
  options.scheduler.max_queue_size = 3;
  TestServer server(options);
  Json many = request(1);
  many["n"] = 4;
  const ClientResponse response = server.post("/v1/completions", many);
  EXPECT_EQ(response.status, 400);
  EXPECT_NE(response.body.find("4 sequences, more than the 3 that wait at once on this server (--max-queue-size)"), std::string::npos);
  EXPECT_EQ(response.json()["error"]["param"], "n");
  EXPECT_EQ(server.engine().num_open(), 0);
}

TEST(Server, DisconnectsAbort) {
  TestServer server;
  server.executor().step_delay_us = 1000;
  for (const bool stream : {false, true}) {
    {
      TestClient client(server.port());
      client.send(TestClient::post_text("/v1/completions", dump_json(request(4000, stream))));
      ASSERT_TRUE(eventually([&] { return server.engine().stats().num_running == 1; }));
    }
    EXPECT_TRUE(eventually([&] { return server.engine().stats().num_running == 0; })) << stream;
    EXPECT_EQ(server.engine().num_open(), 0);
  }
  EXPECT_NE(server.get("/metrics").body.find("finished_reason=\"abort\",model_name=\"test-model\"} 2"),
            std::string::npos);
}

TEST(Server, AFailedEngineEndsStreamsWithItsMessage) {
  TestServer server;
  server.executor().step_delay_us = 1000;
  TestClient streaming(server.port());
  streaming.send(TestClient::post_text("/v1/completions", dump_json(request(4000, true))));
  TestClient plain(server.port());
  plain.send(TestClient::post_text("/v1/completions", dump_json(request(4000))));
  ASSERT_TRUE(eventually([&] { return server.engine().stats().num_running == 2; }));
  server.executor().failing = true;
  const ClientResponse stream = streaming.read_response();
  EXPECT_TRUE(stream.complete);
  const Json last = parse_json(stream.events().back(), "event");
  EXPECT_EQ(last["error"]["message"], "rank 1 (node2) is lost");
  EXPECT_EQ(last["error"]["code"], 503);
  const ClientResponse response = plain.read_response();
  EXPECT_EQ(response.status, 503);
  EXPECT_EQ(response.json()["error"]["message"], "rank 1 (node2) is lost");
  server.join();
  EXPECT_EQ(server.failure(), "rank 1 (node2) is lost");
}

// Whoever restarts the process must not wait for the next client.
TEST(Server, AnIdleEngineThatFailsEndsTheServer) {
  TestServer server;
  EXPECT_EQ(server.post("/v1/completions", request(3)).status, 200);
  server.executor().failing = true;
  ASSERT_TRUE(eventually([&] { return !server.engine().stats().healthy; }));
  ASSERT_TRUE(eventually([&] { return server.ended(); }));
  server.join();
  EXPECT_EQ(server.failure(), "rank 1 (node2) is lost");
}

TEST(Server, AFailedEngineMayStayToSaySo) {
  TestServer::Options options;
  options.config.keep_alive_on_engine_failure = true;
  TestServer server(options);
  server.executor().failing = true;
  EXPECT_EQ(server.post("/v1/completions", request(5)).status, 503);
  EXPECT_EQ(server.get("/health").status, 503);
  EXPECT_EQ(server.get("/ready").status, 503);
  EXPECT_EQ(server.post("/v1/completions", request(5)).status, 503);
}

TEST(Server, DeepHealthSeesAStuckEngine) {
  TestServer server;
  server.executor().paused = true;
  TestClient client(server.port());
  client.send(TestClient::post_text("/v1/completions", dump_json(request(5, true))));
  ASSERT_TRUE(eventually([&] { return server.engine().num_open() == 1; }));
  EXPECT_EQ(server.get("/health").status, 200);
  const ClientResponse deep = server.get("/health?deep&timeout=0.2");
  EXPECT_EQ(deep.status, 503);
  EXPECT_NE(deep.body.find("stuck"), std::string::npos);
  EXPECT_EQ(server.get("/health?deep&timeout=x").status, 400);
  server.executor().paused = false;
  EXPECT_EQ(server.get("/health?deep").status, 200);
}

TEST(Server, HealthGenerateHasADeadlineOfItsOwn) {
  TestServer server;
  server.executor().paused = true;
  const auto begin = Clock::now();
  const ClientResponse stuck = server.get("/health_generate?timeout=0.2");
  EXPECT_EQ(stuck.status, 503);
  EXPECT_NE(stuck.body.find("no token came in time"), std::string::npos);
  EXPECT_LT(Clock::now() - begin, 5s);
  EXPECT_EQ(server.engine().num_open(), 0);
  server.executor().paused = false;
  EXPECT_EQ(server.get("/health_generate").status, 200);
}

TEST(Server, ARequestThatTheCacheCannotHoldIsTheClientsError) {
  TestServer server({.num_kv_blocks = 4});  // 64 tokens, of a context of 4,096
  Json large = request(5);
  large["prompt"] = std::string(100, 'x');
  const ClientResponse prompt = server.post("/v1/completions", large);
  EXPECT_EQ(prompt.status, 400);
  EXPECT_NE(prompt.body.find("shorten the prompt"), std::string::npos);
  const ClientResponse answer = server.post("/v1/completions", request(200));
  EXPECT_EQ(answer.status, 400);
  EXPECT_NE(answer.body.find("lower max_tokens"), std::string::npos);
  EXPECT_EQ(server.post("/v1/completions", request(5)).status, 200);
}

TEST(Server, Deadlines) {
  TestServer server;
  server.executor().step_delay_us = 2000;
  const ClientResponse late = server.post("/v1/completions", request(4000), "x-request-timeout: 0.1\r\n");
  EXPECT_EQ(late.status, 504);
  EXPECT_EQ(late.json()["error"]["type"], "TimeoutError");
  EXPECT_EQ(server.post("/v1/completions", request(5), "x-request-timeout: 60\r\n").status, 200);
  EXPECT_EQ(server.post("/v1/completions", request(5), "x-request-timeout: soon\r\n").status, 400);
}

TEST(Server, TheServersOwnDeadlineIsForRequestsThatStateNone) {
  TestServer::Options options;
  options.config.request_timeout = 100ms;
  TestServer server(options);
  server.executor().step_delay_us = 2000;
  EXPECT_EQ(server.post("/v1/completions", request(4000)).status, 504);
  EXPECT_EQ(server.post("/v1/completions", request(100), "x-request-timeout: 60\r\n").status, 200);
}

TEST(Server, DeadlinesHoldWhileTheEngineIsStuck) {
  TestServer server;
  server.executor().paused = true;
  for (const bool stream : {false, true}) {
    const auto begin = Clock::now();
    const ClientResponse response = server.post("/v1/completions", request(10, stream), "x-request-timeout: 0.2\r\n");
    EXPECT_LT(Clock::now() - begin, 3s);
    EXPECT_TRUE(response.complete);
    if (stream) {
      EXPECT_NE(response.events().back().find("deadline"), std::string::npos);
    } else {
      EXPECT_EQ(response.status, 504);
    }
  }
  EXPECT_EQ(server.engine().num_open(), 0);
}

TEST(Server, DrainLetsRequestsEnd) {
  TestServer server;
  server.executor().step_delay_us = 2000;
  TestClient client(server.port());
  client.send(TestClient::post_text("/v1/completions", dump_json(request(100, true))));
  TestClient other(server.port());
  EXPECT_EQ(other.get("/ready").status, 200);
  ASSERT_TRUE(eventually([&] { return server.engine().stats().num_running == 1; }));
  server.server().drain(Deadline::after(10s));
  EXPECT_EQ(other.get("/ready").status, 503);
  EXPECT_EQ(other.get("/health").status, 200);
  const ClientResponse refused = other.post("/v1/completions", request(1));
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.headers.at("retry-after"), "1");
  const ClientResponse response = client.read_response();
  EXPECT_TRUE(response.complete);
  EXPECT_EQ(response.events().back(), "[DONE]");
  server.join();
}

TEST(Server, DrainEndsAtItsDeadline) {
  TestServer server;
  server.executor().step_delay_us = 2000;
  TestClient client(server.port());
  client.send(TestClient::post_text("/v1/completions", dump_json(request(4000, true))));
  ASSERT_TRUE(eventually([&] { return server.engine().stats().num_running == 1; }));
  server.server().drain(Deadline::after(30s));
  server.server().drain(Deadline::after(50ms));
  const ClientResponse response = client.read_response();
  EXPECT_TRUE(response.complete);
  EXPECT_NE(response.events().back().find("shutting down"), std::string::npos);
  server.join();
}

TEST(Server, DrainTellsClientsWhileTheEngineIsInALongStep) {
  TestServer server;
  server.executor().paused = true;
  TestClient client(server.port());
  client.send(TestClient::post_text("/v1/completions", dump_json(request(10, true))));
  TestClient plain(server.port());
  plain.send(TestClient::post_text("/v1/completions", dump_json(request(10))));
  ASSERT_TRUE(eventually([&] { return server.engine().num_open() == 2; }));
  server.server().drain(Deadline::after(0s));
  const ClientResponse response = client.read_response();
  EXPECT_TRUE(response.complete);
  EXPECT_NE(response.events().back().find("shutting down"), std::string::npos);
  EXPECT_EQ(plain.read_response().status, 503);
  EXPECT_EQ(server.server().num_aborted(), 2);
  server.executor().paused = false;
  server.join();
}

TEST(Server, DrainWaitsForClientsThatReadSlowly) {
  for (const bool hurry : {false, true}) {
    TestServer server;
    TestClient client(server.port());
    Json large = request(4000);
    large["logprobs"] = 20;
    large["n"] = 6;  // megabytes, more than the kernel takes
    client.send(TestClient::post_text("/v1/completions", dump_json(large)));
    ASSERT_TRUE(eventually([&] { return server.engine().stats().generation_tokens == 24'000 && server.engine().num_open() == 0; }));
    server.server().drain(Deadline::after(30s));
    if (hurry) {
      server.server().drain(Deadline::after(0s));
      EXPECT_TRUE(eventually([&] { return server.ended(); }));
    } else {
      std::this_thread::sleep_for(3s);
      EXPECT_FALSE(server.ended());
    }
    EXPECT_EQ(client.read_response().complete, !hurry);
  }
}

TEST(Server, LargePromptsDoNotHoldUpOthers) {
  TestServer::Options options;
  options.max_model_len = 1'000'000;
  options.scheduler.max_num_batched_tokens = 100'000;
  TestServer server(options);
  Json large = request(3);
  large["prompt"] = std::string(300'000, 'x');
  const Json body = server.post("/v1/completions", large).json();
  EXPECT_EQ(body["usage"]["prompt_tokens"], 300'001);
  large["prompt"] = std::string(10'000'000, 'x');
  TestClient client(server.port());
  client.send(TestClient::post_text("/v1/completions", dump_json(large)));
  EXPECT_EQ(client.read_response().status, 400);
  EXPECT_EQ(server.get("/health").status, 200);
}

TEST(Server, ManyLargePromptsAtOnceWaitTheirTurn) {
  TestServer::Options options;
  options.max_model_len = 1'000'000;
  TestServer server(options);
  Json large = request(1);
  large["prompt"] = std::string(100'000, 'x');
  const std::string text = TestClient::post_text("/v1/completions", dump_json(large));
  std::vector<std::unique_ptr<TestClient>> clients;
  for (int i = 0; i < 80; ++i) {
    clients.push_back(std::make_unique<TestClient>(server.port()));
    clients.back()->send(text);
  }
  for (const auto& client : clients) EXPECT_EQ(client->read_response().status, 200);
}

TEST(Server, ASmallBodyDoesNotBecomeGigabytes) {
  TestServer::Options options;
  options.max_model_len = 1'000'000;
  TestServer server(options);
  Json many = request(1);
  many["prompt"] = std::string(100'000, 'x');
  many["n"] = 128;
  const ClientResponse response = server.post("/v1/completions", many);
  EXPECT_EQ(response.status, 400);
  EXPECT_EQ(response.json()["error"]["param"], "n");
  EXPECT_EQ(server.engine().num_open(), 0);
}

}  // namespace
}  // namespace tutti
