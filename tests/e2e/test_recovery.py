"""With --recovery-wait a lost rank costs time, not answers: requests wait and go on where they were."""
import contextlib
import os
import signal
import socket
import threading
import time
import unittest

from cluster_harness import ClusterTest, children_of

READY = "Application startup complete."
NUM_TOKENS = 240


class Recovery(ClusterTest):
    def text(self, events):
        return "".join(choice["text"] for event in events for choice in event.get("choices", []))

    def undisturbed(self):
        return self.text(self.stream(max_tokens=NUM_TOKENS))

    def disturbed(self, action):
        """The text of an answer in whose middle `action` runs."""
        events = []
        for number, event in enumerate(self.stream(max_tokens=NUM_TOKENS, timeout=240)):
            events.append(event)
            if number == 20:
                action()
        self.assertNotIn("error", events[-1])
        return self.text(events)

    def sockets_of(self, pid):
        """What the process has open, by inode."""
        links = []
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(FileNotFoundError):
                links.append(os.readlink(f"/proc/{pid}/fd/{fd}"))
        return {link for link in links if link.startswith("socket:")}

    def worker(self):
        worker = self.start("worker", "--master-ip", "127.0.0.1", "--master-port", self.control_port)
        return worker

    def test_a_killed_local_rank_is_started_again(self):
        head = self.serve("-tp", 2, "--recovery-wait", 30)
        head.wait_for(READY)
        whole = self.undisturbed()
        old = children_of(head.pid)
        self.assertEqual(self.disturbed(lambda: os.kill(old[1], signal.SIGKILL)), whole)
        head.wait_for(rf"warning +rank [01] \(.*, pid {old[1]}\) was killed by signal 9.*Requests wait, for 30 s \(--recovery-wait\)")
        head.wait_for(r"ready +TP=2 again: requests go on from the tokens they have, out for [\d.]+ s")
        self.assertEqual(set(children_of(head.pid)) & set(old), set())
        own = self.sockets_of(head.pid)
        for rank in children_of(head.pid):  # a connection that the head closes would stay open with them
            self.assertEqual(self.sockets_of(rank) & own, set())
        head.signal(signal.SIGTERM)
        self.assertEqual(head.wait_exit(), 0, head.log())

    def test_connections_leave_descriptors_for_ranks(self):
        head = self.serve("--recovery-wait", 30, prefix=("prlimit", "--nofile=96:96"))
        head.wait_for(READY)
        idle = [socket.create_connection(("127.0.0.1", self.port), timeout=10) for _ in range(200)]
        os.kill(children_of(head.pid)[0], signal.SIGKILL)
        head.wait_for(r"ready +TP=1 again")
        for connection in idle:
            connection.close()
        self.assertTrue(self.complete())

    def test_an_idle_cluster_heals_before_the_next_request(self):
        head = self.serve("-tp", 2, "--recovery-wait", 30)
        head.wait_for(READY)
        whole = self.complete()
        os.kill(children_of(head.pid)[0], signal.SIGKILL)
        head.wait_for(r"ready +TP=2 again")
        self.assertEqual(self.complete(), whole)

    def test_a_killed_rank_of_another_node_is_started_again(self):
        head = self.serve("-tp", 2, "--nnodes", 2, "--master-addr", "127.0.0.1", "--recovery-wait", 30)
        worker = self.worker()
        head.wait_for(READY)
        worker.wait_for("ready +rank 1 serves")
        whole = self.undisturbed()
        victim = children_of(worker.pid)[0]
        self.assertEqual(self.disturbed(lambda: os.kill(victim, signal.SIGKILL)), whole)
        head.wait_for(r"ready +TP=2 again")
        worker.wait_for(rf"warning +rank 1 \(.*, pid {victim}\) was killed by signal 9 \(Killed\)\. The ranks here end, and start again")

    def another_takes_over(self, number):
        """A worker gets a signal in the middle of an answer, which another one's rank goes on with: the head and the first worker."""
        head = self.serve("-tp", 2, "--nnodes", 2, "--master-addr", "127.0.0.1", "--recovery-wait", 60)
        first = self.worker()
        head.wait_for(READY)
        first.wait_for("ready +rank 1 serves")
        whole = self.undisturbed()

        def replace():
            first.signal(number)
            threading.Timer(1.0, self.worker).start()

        self.assertEqual(self.disturbed(replace), whole)
        return head, first

    def test_another_worker_takes_the_place_of_a_lost_one(self):
        head, _ = self.another_takes_over(signal.SIGKILL)
        head.wait_for(r"waiting +for 1 more rank, for [\d]+ s \(--recovery-wait\)")
        head.wait_for(r"ready +TP=2 again")

    def test_another_worker_takes_the_place_of_one_that_leaves(self):
        head, first = self.another_takes_over(signal.SIGTERM)
        head.wait_for(r"warning +rank 1 \(.*\) is lost: its worker was asked to end\. Requests wait, for 60 s \(--recovery-wait\)")
        head.wait_for(r"ready +TP=2 again")
        self.assertEqual(first.wait_exit(), 0, first.log())
        first.wait_for("ended +the head has let this node go")
        head.signal(signal.SIGTERM)
        self.assertEqual(head.wait_exit(), 0, head.log())

    def test_nobody_comes_back(self):
        head = self.serve("-tp", 2, "--nnodes", 2, "--master-addr", "127.0.0.1", "--recovery-wait", 2)
        worker = self.worker()
        head.wait_for(READY)
        last = {}
        for number, event in enumerate(self.stream()):
            last = event
            if number == 3:
                worker.signal(signal.SIGKILL)
        self.assertRegex(last["error"]["message"], r"rank 1 \(")
        self.assertEqual(head.wait_exit(), 5, head.log())
        self.assertRegex(head.log(), r"error +no recovery: need 2 ranks, have 1")

    def test_a_signal_ends_the_wait(self):
        head = self.serve("-tp", 2, "--nnodes", 2, "--master-addr", "127.0.0.1", "--recovery-wait", 60)
        worker = self.worker()
        head.wait_for(READY)
        worker.signal(signal.SIGKILL)
        head.wait_for(r"waiting +for 1 more rank, for [\d]+ s \(--recovery-wait\)")
        begin = time.monotonic()
        head.signal(signal.SIGTERM)
        self.assertIn(head.wait_exit(15), (0, 5), head.log())
        self.assertLess(time.monotonic() - begin, 8)


if __name__ == "__main__":
    unittest.main(verbosity=2)
