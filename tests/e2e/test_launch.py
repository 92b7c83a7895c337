"""Four ways of launching give the same cluster: the same answer as one rank, and nothing left afterwards."""
import json
import pathlib
import re
import signal
import time
import unittest

from cluster_harness import ClusterTest, free_ports

READY = "Application startup complete."


def loopback_bytes():
    return int(pathlib.Path("/sys/class/net/lo/statistics/tx_bytes").read_text())


class Launch(ClusterTest):
    def end(self, head):
        head.signal(signal.SIGTERM)
        self.assertEqual(head.wait_exit(), 0, head.log())

    def test_one_node_spawns_its_ranks(self):
        head = self.serve("-tp", 2)
        head.wait_for(READY)
        self.assertRegex(head.log(), r"GPU KV cache size: [\d,]+ tokens")
        self.assertRegex(head.log(), r"Maximum concurrency for 2,048 tokens per request: [\d.]+x")
        self.assertEqual(len(head.ranks), 2)
        self.assertEqual(self.complete(), self.reference_text())
        metrics = "\n".join(line for line in self.get("/metrics").splitlines() if line.startswith("tutti:rank_"))
        for rank in (0, 1):
            self.assertRegex(metrics, rf'tutti:rank_step_seconds_total{{rank="{rank}",node=".*"}} [0-9.]*[1-9]')
        self.end(head)

    def test_uneven_ranks(self):
        head = self.serve("-tp", 3)  # 9 heads, 3 KV heads
        head.wait_for(READY)
        self.assertEqual(self.complete(), self.reference_text())
        self.end(head)

    def test_ranks_of_unequal_speed(self):
        head = self.serve("-tp", 2, "--tensor-split", "2,1")
        head.wait_for(READY)
        self.assertEqual(self.complete(), self.reference_text())
        weights = [float(w) for w in head.wait_for(r"weights by rank: ([\d.]+), ([\d.]+) GiB").groups()]
        self.assertGreater(weights[0], 1.4 * weights[1])
        self.end(head)

    def test_pipeline_stages(self):
        for flags in ([], ["--pipeline-layer-partition", "7,5"]):
            head = self.serve("-pp", 2, *flags)
            head.wait_for(READY)
            self.assertEqual(self.complete(), self.reference_text())
            metrics = self.get("/metrics")
            for name in ("rank_pp_comm_seconds_total{rank=\"1\"", "rank_pp_comm_bytes_total{rank=\"1\"", "bubble_seconds_total"):
                self.assertRegex(metrics, rf"tutti:{re.escape(name)}.* [0-9.e+-]*[1-9]")
            client = self.start("complete", "Hello", "--url", f"http://127.0.0.1:{self.port}", "--max-tokens", 24)
            self.assertEqual(client.wait_exit(60), 0, client.log())
            self.assertRegex(client.log(), r"communication \d+% \(\d+% between stages\).* between ranks \(.* between stages\), "
                                           r"bubble \d+%, slowest: rank [01]")
            self.end(head)

    def test_one_rank_moves_nothing(self):
        head = self.serve()
        head.wait_for(READY)
        self.complete()
        self.assertRegex(self.get("/metrics"), r"tutti:comm_bytes_total(\{.*\})? 0(\.0)?\n")
        self.end(head)

    def test_sums_may_cross_in_a_smaller_type(self):
        """Two nodes on loopback, as only what crosses between nodes is cut down."""
        traffic = {}
        for dtype in ("auto", "int8"):
            head = self.serve("-tp", 2, "--nnodes", 2, "--master-addr", "127.0.0.1", "--comm-dtype", dtype, "--tcp-streams", 2)
            worker = self.start("worker", "--master-ip", "127.0.0.1", "--master-port", self.control_port, "--once")
            head.wait_for(READY)
            before = loopback_bytes()
            self.complete(max_tokens=200)
            traffic[dtype] = loopback_bytes() - before
            self.end(head)
            self.assertEqual(worker.wait_exit(), 0, worker.log())
        self.assertLess(traffic["int8"], 0.75 * traffic["auto"])

    def test_the_same_command_on_every_node(self):
        flags = ["-tp", 2, "--nnodes", 2, "--master-addr", "127.0.0.1"]
        other = self.serve(*flags, "--node-rank", 1, "--headless")  # starts first and waits
        other.wait_for(r"waiting +for the head at 127.0.0.1:\d+ \(connection refused\), trying every 2 s")
        head = self.serve(*flags, "--node-rank", 0)
        head.wait_for(READY)
        other.wait_for(r"joined +cluster 0011 as rank 1")
        health = other.wait_for(r"ready +rank 1 serves\.( Health and metrics: http://127.0.0.1:8001\.)?").group(1)
        if health:
            self.assertIn('"ready"', self.get("/health", port=8001))
        else:
            other.wait_for("port 8001 is taken.*: no /health and /metrics of this node")
        self.assertEqual(self.complete(), self.reference_text())
        self.end(head)
        self.assertEqual(other.wait_exit(), 0, other.log())

    def test_a_worker_joins_with_the_line_that_the_head_prints(self):
        head = self.serve("-tp", 2, "--nnodes", 2, "--master-addr", "127.0.0.1")
        line = head.wait_for(r"waiting +for 1 more rank, for 10 min .*\n.*?tutti (worker --master-ip 127.0.0.1 --master-port \d+) --token-file")
        status = self.start("status", "--address", f"127.0.0.1:{self.control_port}")
        self.assertEqual(status.wait_exit(), 1, status.log())  # not ready
        self.assertRegex(status.stdout, r"cluster +0011 +joining")
        health_port = free_ports(1)[0]
        worker = self.start(*line.group(1).split(), "--tensor-parallel-size", 2, "--pipeline-parallel-size", 1, "--port", health_port)
        head.wait_for(READY)
        head.wait_for(r"joined +.* 127.0.0.1: .*rank 1; same build(.|\n)*layout +TP=2 over 2 nodes")
        worker.wait_for(rf"ready +rank 1 serves. Health and metrics: http://127.0.0.1:{health_port}. Ctrl-C drains, then leaves")
        self.assertEqual(self.complete(), self.reference_text())
        self.assertIn('"ready"', self.get("/health", port=health_port))
        self.assertRegex(self.get("/metrics", port=health_port), r'tutti:worker_rank_steps_total{rank="1"} [1-9]')
        status = self.start("status", "--address", f"127.0.0.1:{self.control_port}")
        self.assertEqual(status.wait_exit(), 0, status.log())
        self.assertRegex(status.stdout, r"cluster +0011 +ready")
        self.assertRegex(status.stdout, r"rank 1 ")
        self.end(head)

        # The worker stays, for the next head.
        worker.wait_for(r"ended +the head was asked to end")
        again = self.serve("-tp", 2, "--nnodes", 2, "--master-addr", "127.0.0.1")
        again.wait_for(READY)
        self.assertEqual(self.complete(), self.reference_text())
        worker.signal(signal.SIGTERM)
        self.assertEqual(worker.wait_exit(), 0, worker.log())

    def test_every_rank_computes_with_the_heads_kernels(self):
        level = {"TUTTI_CPU_ISA": "portable"}
        question = {"prompt": "Hello", "max_tokens": 8, "temperature": 0, "ignore_eos": True, "logprobs": 2}
        answers = []
        for local in (True, False):
            head = self.serve("-tp", 2, *([] if local else ["--nnodes", 2, "--master-addr", "127.0.0.1"]), env=level)
            if not local:
                self.start("worker", "--master-ip", "127.0.0.1", "--master-port", self.control_port)
            head.wait_for(READY)
            status, body = self.post(question)
            self.assertEqual(status, 200, body)
            answers.append(json.loads(body)["choices"])
            head.signal(signal.SIGTERM)
            self.assertEqual(head.wait_exit(), 0, head.log())
        self.assertEqual(*answers)

    def test_a_worker_that_asks_for_other_kernels_is_told(self):
        head = self.serve("-tp", 2, "--nnodes", 2, "--master-addr", "127.0.0.1")
        worker = self.start("worker", "--master-ip", "127.0.0.1", "--master-port", self.control_port, env={"TUTTI_CPU_ISA": "portable"})
        message = r"TUTTI_CPU_ISA=portable here, but the head's ranks compute with \w+, and two levels give other bits"
        head.wait_for(message)
        worker.wait_for(message)
        self.assertNotEqual(head.wait_exit(), 0)

    def test_questions_in_the_words_of_vllm(self):
        head = self.serve("--served-model-name", "small")
        head.wait_for(READY)
        url = f"http://127.0.0.1:{self.port}/v1"
        for arguments in (("chat", "-q", "Hello", "--system-prompt", "Be brief."), ("complete", "-q", "Hello"), ("complete", "Hello")):
            client = self.start(*arguments, "--url", url, "--model-name", "small", "--max-tokens", 4)
            self.assertEqual(client.wait_exit(60), 0, client.log())
            self.assertRegex(client.log(), r"done +\d+ in, \d out")
        self.end(head)

    def test_a_worker_too_many_says_once_that_it_waits(self):
        head = self.serve("-tp", 2)
        head.wait_for(READY)
        worker = self.start("worker", "--master-ip", "127.0.0.1", "--master-port", self.control_port, "--port", 0, "--log-format", "json")
        worker.wait_for("all 2 ranks have a node already; the head was started for one node: --nnodes 2 there")
        time.sleep(5)  # two more tries
        self.assertEqual(len(worker.lines), 3, worker.log())
        self.assertTrue(all(json.loads(line)["text"] for line in worker.lines))
        worker.signal(signal.SIGTERM)
        self.assertEqual(worker.wait_exit(), 0, worker.log())
        self.end(head)

    def test_one_process_a_rank_from_the_environment(self):
        def environment(rank):
            return {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(self.control_port), "WORLD_SIZE": "2", "RANK": str(rank)}

        one = self.start("serve", *self.model_flags(), env=environment(1))
        zero = self.start("serve", *self.model_flags(), "--port", self.port, env=environment(0))
        zero.wait_for(READY)
        self.assertEqual(self.complete(), self.reference_text())
        zero.wait_for("WORLD_SIZE=2 processes were started, one a rank: -tp 2")
        one.wait_for("ready +rank 1 serves")
        self.assertEqual((len(zero.ranks), len(one.ranks)), (1, 1))
        self.end(zero)
        self.assertEqual(one.wait_exit(), 0, one.log())


if __name__ == "__main__":
    unittest.main(verbosity=2)
