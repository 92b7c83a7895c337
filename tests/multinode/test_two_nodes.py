"""A model cut over two nodes gives the text of one rank, over the wire and nothing but the wire; a cut wire is noticed."""
import os
import pathlib
import signal
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))

from cluster_harness import ClusterTest, children_of, process_state  # noqa: E402
from two_nodes import TwoNodes, available, smallest_payload, real_model  # noqa: E402

READY = "Application startup complete."
NUM_TOKENS = 32


class TwoNodeTest(ClusterTest):
    def setUp(self):
        super().setUp()
        self.nodes = TwoNodes()
        self.addCleanup(self.nodes.close)
        self.head_address = self.nodes.addresses["cluster0"][0]

    real = False

    def model_flags(self):
        if self.real:
            return [real_model(), "--max-model-len", "2048", "--kv-cache-memory-bytes", "256M"]
        return super().model_flags()

    def start_cluster(self, *flags, worker_flags=()):
        head = self.serve("--nnodes", 2, "--master-addr", self.head_address, *flags, netns=self.nodes.names[0])
        # Another state folder, as on another machine; the token comes from the environment.
        worker = self.start("worker", "--master-ip", self.head_address, "--master-port", self.control_port, *worker_flags,
                            netns=self.nodes.names[1], home=self.home / "other")
        head.wait_for(READY)
        return head, worker

    def ask(self, max_tokens=NUM_TOKENS):
        """The answer of the server on node 1, asked from node 1."""
        client = self.start_client(max_tokens)
        self.assertEqual(client.wait_exit(120), 0, client.log())
        return client.stdout

    def start_client(self, max_tokens):
        return self.start("complete", "The capital of France is", "--url", f"http://127.0.0.1:{self.port}", "--max-tokens",
                          max_tokens, netns=self.nodes.names[0])

    def text_of_one_rank(self):
        head = self.serve(netns=self.nodes.names[0])
        head.wait_for(READY)
        text = self.ask()
        head.signal(signal.SIGTERM)
        self.assertEqual(head.wait_exit(), 0, head.log())
        return text

    def test_tensor_parallel_over_the_wire(self):
        reference = self.text_of_one_rank()
        head, worker = self.start_cluster("-tp", 2)
        worker.wait_for(rf"{self.nodes.addresses['cluster0'][1]} \(cluster0, the route to {self.head_address}\)")
        before = [self.nodes.sent_bytes(node, "cluster0") for node in (0, 1)]
        self.assertEqual(self.ask(), reference)
        for node in (0, 1):
            grown = self.nodes.sent_bytes(node, "cluster0") - before[node]
            self.assertGreaterEqual(grown, smallest_payload(NUM_TOKENS), f"node {node + 1} talked past the wire")
        head.signal(signal.SIGTERM)
        self.assertEqual(head.wait_exit(), 0, head.log())

    def test_tensor_and_pipeline_parallel_over_the_wire(self):
        reference = self.text_of_one_rank()
        self.start_cluster("-tp", 2, "-pp", 2)
        before = self.nodes.sent_bytes(0, "cluster0")
        self.assertEqual(self.ask(), reference)
        # Only hidden states of the stage boundary cross: one row a token and rank.
        self.assertGreater(self.nodes.sent_bytes(0, "cluster0") - before, NUM_TOKENS * 576 * 4)

    @unittest.skipUnless(real_model(), "no SmolLM2 here: scripts/demo.sh fetches it, TUTTI_TEST_MODEL names another")
    def test_a_real_model_gives_its_text_over_the_wire(self):
        self.real = True
        reference = self.text_of_one_rank()
        self.assertIn("Paris", reference)
        for flags in (["-tp", 2], ["-tp", 2, "-pp", 2]):
            head, worker = self.start_cluster(*flags)
            self.assertEqual(self.ask(), reference, flags)
            head.signal(signal.SIGTERM)
            self.assertEqual(head.wait_exit(), 0, head.log())
            worker.signal(signal.SIGTERM)
            self.assertEqual(worker.wait_exit(), 0, worker.log())

    def test_the_forced_interface_carries_the_data(self):
        head, worker = self.start_cluster("-tp", 2, "--network-interface", "other0", worker_flags=["--network-interface", "10.234.0.0/16"])
        other = self.nodes.addresses["other0"]
        worker.wait_for(rf"{other[1]} \(other0")
        head.wait_for(rf"joined +.* {other[1]}: ")
        before = self.nodes.sent_bytes(1, "other0")
        self.ask()
        self.assertGreaterEqual(self.nodes.sent_bytes(1, "other0") - before, smallest_payload(NUM_TOKENS))

    def test_a_cut_wire_ends_the_answer_with_the_name_of_the_rank(self):
        self.lose_node(self.nodes.cut)

    def test_a_black_hole_ends_the_answer_with_the_name_of_the_rank(self):
        self.lose_node(self.nodes.swallow)

    def test_a_half_open_socket_is_noticed(self):
        """Node 2 dies while the wire is cut, so nobody says goodbye; then the wire is mended."""
        head, worker = self.start_cluster("-tp", 2)
        client = self.start_client(1900)
        time.sleep(1.5)
        self.assertIsNone(client.process.poll(), client.log())
        ranks = children_of(worker.pid)
        begin = time.monotonic()
        self.nodes.cut("cluster0")
        worker.signal(signal.SIGKILL)
        worker.process.wait()
        while any(process_state(rank) not in (None, "Z") for rank in ranks):
            time.sleep(0.02)
        self.nodes.mend("cluster0")
        self.assertEqual(client.wait_exit(20), 5, client.log())
        self.assertLess(time.monotonic() - begin, 12)
        self.assertRegex(client.log(), r"rank 1 \(")
        self.assertEqual(head.wait_exit(20), 5, head.log())

    def test_two_heads_are_told(self):
        head = self.serve("-tp", 2, "--nnodes", 2, "--master-addr", self.head_address, netns=self.nodes.names[0])
        head.wait_for(r"waiting +for 1 more rank")
        second = self.serve("-tp", 2, "--nnodes", 2, "--master-addr", self.head_address, netns=self.nodes.names[1],
                            home=self.home / "other")
        self.assertEqual(second.wait_exit(20), 4, second.log())
        self.assertRegex(second.log(), rf"error +two heads: {self.head_address}:\d+ is not this node and has a head already "
                                       rf"\(with .*\)\. Join it: --node-rank 1, or tutti worker --master-ip {self.head_address}\. Exit 4")
        self.assertIsNone(head.process.poll(), "the first head waits on")

    def test_one_address_on_two_nodes_is_refused(self):
        self.nodes.add_twin("twin0", "10.235.0.1")
        # The head is reached over cluster0, but both nodes are told to use the bridge between ranks.
        head = self.serve("-tp", 2, "--nnodes", 2, "--network-interface", "twin0", netns=self.nodes.names[0])
        head.wait_for(r"waiting +for 1 more rank")
        worker = self.start("worker", "--master-ip", self.head_address, "--master-port", self.control_port, "--network-interface",
                            "twin0", netns=self.nodes.names[1], home=self.home / "other")
        self.assertEqual(worker.wait_exit(20), 4, worker.log())
        self.assertRegex(worker.log(), rf"refused by {self.head_address}: its address 10.235.0.1 is that of .* as well. "
                                       r"--network-interface names the network between the nodes. Exit 4")

    def test_a_stopped_rank_on_the_other_node_is_told_from_a_cut_wire(self):
        head, worker = self.start_cluster("-tp", 2)
        client = self.start_client(1900)
        time.sleep(1.5)
        victim = children_of(worker.pid)[0]
        begin = time.monotonic()
        os.kill(victim, signal.SIGSTOP)
        self.assertEqual(client.wait_exit(20), 5, client.log())
        self.assertLess(time.monotonic() - begin, 12)
        self.assertRegex(client.log(), rf"rank 1 \(.*, pid {victim}\) is stopped \(process state T\), by SIGSTOP or a debugger")
        self.assertEqual(head.wait_exit(20), 5, head.log())

    def lose_node(self, action):
        head, worker = self.start_cluster("-tp", 2)
        client = self.start_client(1900)
        time.sleep(1.5)
        self.assertIsNone(client.process.poll(), client.log())
        begin = time.monotonic()
        action("cluster0")
        self.assertEqual(client.wait_exit(20), 5, client.log())
        self.assertLess(time.monotonic() - begin, 12)
        self.assertRegex(client.log(), r"rank 1 \(")
        self.assertEqual(head.wait_exit(20), 5, head.log())
        worker.wait_for(r"waiting +for the head", 20)


if __name__ == "__main__":
    if not available():
        in_ci = os.environ.get("CI") == "true"
        print("two nodes need root, iproute2 and iptables" + ("" if in_ci else ": skipped"))
        sys.exit(1 if in_ci else 77)
    unittest.main(verbosity=2)
