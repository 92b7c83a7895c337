"""SIGTERM lets running answers finish, a second signal does not; nothing is left either way."""
import signal
import threading
import time
import unittest

from cluster_harness import ClusterTest

READY = "Application startup complete."
PATIENT = ("--shutdown-timeout", 240)  # a busy machine takes longer than the 30 s that there are otherwise


class Shutdown(ClusterTest):
    def ready_head(self, *flags):
        head = self.serve("-tp", 2, *flags)
        head.wait_for(READY)
        return head

    def stream_in_background(self, max_tokens):
        events = []
        started = threading.Event()

        def run():
            for event in self.stream(max_tokens=max_tokens):
                events.append(event)
                if len(events) == 3:
                    started.set()

        thread = threading.Thread(target=run)
        thread.start()
        self.assertTrue(started.wait(30), "no answer came")
        return events, thread

    def test_running_answers_finish_and_new_ones_are_refused(self):
        head = self.ready_head(*PATIENT)
        events, thread = self.stream_in_background(400)
        head.signal(signal.SIGTERM)
        head.wait_for(r"draining +1 request runs, no new ones, for up to 240 s")
        refused = self.post({"prompt": "Hello"})[0] if thread.is_alive() else 503
        thread.join(240)
        self.assertEqual(refused, 503)
        self.assertEqual(events[-1]["choices"][0]["finish_reason"], "length")
        self.assertEqual(head.wait_exit(), 0, head.log())

    def test_a_second_signal_ends_now(self):
        head = self.ready_head()
        events, thread = self.stream_in_background(1900)
        head.signal(signal.SIGTERM)
        head.wait_for("draining")
        begin = time.monotonic()
        head.signal(signal.SIGINT)
        self.assertEqual(head.wait_exit(15), 0, head.log())
        self.assertLess(time.monotonic() - begin, 8)
        thread.join(10)
        self.assertFalse(thread.is_alive())
        self.assertGreater(len(events), 2)
        self.assertIn("shutting down", events[-1]["error"]["message"])
        self.assertRegex(head.log(), "warning +1 open request is cut off: it was asked to end now, by a second signal")
        head.wait_for("ended +1 request ended with an error, all ranks have ended")

    def test_the_timeout_bounds_the_drain(self):
        head = self.ready_head("--shutdown-timeout", 1)
        _, thread = self.stream_in_background(1900)
        begin = time.monotonic()
        head.signal(signal.SIGTERM)
        self.assertEqual(head.wait_exit(20), 0, head.log())
        self.assertLess(time.monotonic() - begin, 8)
        self.assertRegex(head.log(), "warning +1 open request is cut off: the --shutdown-timeout is over")
        thread.join(10)

    def test_a_worker_that_is_asked_to_end_lets_answers_finish(self):
        head = self.serve("-tp", 2, "--nnodes", 2, "--master-addr", "127.0.0.1", *PATIENT)
        worker = self.start("worker", "--master-ip", "127.0.0.1", "--master-port", self.control_port)
        head.wait_for(READY)
        worker.wait_for(r"ready +rank 1 serves")
        events, thread = self.stream_in_background(300)
        worker.signal(signal.SIGTERM)
        worker.wait_for("draining +the head lets running requests finish")
        head.wait_for(r"draining +.* wants to leave: 1 request runs")
        thread.join(240)
        self.assertEqual(events[-1]["choices"][0]["finish_reason"], "length")
        self.assertEqual(worker.wait_exit(), 0, worker.log())
        self.assertEqual(head.wait_exit(), 5, head.log())
        self.assertRegex(head.log(), "left, all requests are answered")

    def test_interrupted_while_it_waits_for_nodes(self):
        head = self.serve("-tp", 2, "--nnodes", 2)
        head.wait_for(r"waiting +for 1 more rank")
        head.signal(signal.SIGINT)
        self.assertEqual(head.wait_exit(5), 0, head.log())


if __name__ == "__main__":
    unittest.main(verbosity=2)
