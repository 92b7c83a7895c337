"""What goes wrong is noticed in time, said in words that name the culprit, and leaves nothing behind."""
import os
import pathlib
import shutil
import signal
import socket
import time
import unittest

from cluster_harness import BINARY, TOKEN, ClusterTest, children_of

READY = "Application startup complete."


class Refusals(ClusterTest):
    """Nothing starts that cannot work."""

    def head_that_waits(self, *flags):
        head = self.serve("-tp", 2, "--nnodes", 2, "--master-addr", "127.0.0.1", *flags)
        head.wait_for(r"waiting +for 1 more rank")
        return head

    def worker(self, *flags, **options):
        return self.start("worker", "--master-ip", "127.0.0.1", "--master-port", self.control_port, *flags, **options)

    def test_a_wrong_token_is_called_that(self):
        self.head_that_waits()
        worker = self.worker(env={"TUTTI_CLUSTER_TOKEN": "tutti1-0011aabb-ffffffffffffffffffffffffffffffff"})
        self.assertEqual(worker.wait_exit(), 4)
        self.assertRegex(worker.log(), r"error +refused by 127.0.0.1: wrong token.*`tutti token` on the head prints the right one. Exit 4")

    def test_a_worker_without_the_token_of_the_head_beside_it(self):
        self.head_that_waits()
        worker = self.worker(env={"TUTTI_CLUSTER_TOKEN": None}, home=self.home / "another-user")
        self.assertEqual(worker.wait_exit(), 2, worker.log())
        self.assertRegex(worker.log(), rf"error +no cluster token for the head that listens at 127.0.0.1:{self.control_port}: .*--token TOKEN")

    def test_a_worker_says_again_that_it_waits(self):
        worker = self.worker("--port", 0)
        worker.wait_for(r"waiting +1\d s for the head at 127.0.0.1:\d+ \(connection refused\), trying every 2 s", 20)

    def test_a_short_token_is_refused(self):
        worker = self.worker(env={"TUTTI_CLUSTER_TOKEN": "secret"})
        self.assertEqual(worker.wait_exit(), 2)
        self.assertRegex(worker.log(), r"6 characters, at least 32 are needed")

    def test_flags_that_differ_are_shown_in_two_columns(self):
        head = self.head_that_waits()
        worker = self.worker("-tp", 4)
        self.assertEqual(worker.wait_exit(), 4)
        self.assertRegex(worker.log(), r"refused by 127.0.0.1: the nodes differ. Exit 4\n.*\(head\) +.*\(joining\)\n.*--tensor-parallel-size +2 +4")
        head.wait_for(r"warning +.* is refused: the nodes differ\n.*\(head\) +.*\(joining\)\n")

    def test_other_model_files_are_named(self):
        self.head_that_waits()
        other = pathlib.Path(self.folder.name) / "other-model"
        shutil.copytree(self.model, other)
        (other / "tokenizer.json").unlink()
        worker = self.worker("--model", other)
        self.assertEqual(worker.wait_exit(), 4)
        self.assertRegex(worker.log(), r"model files +2, .*1: tokenizer.json is missing")
        missing = self.worker("--model", "/no/such/model")
        self.assertEqual(missing.wait_exit(), 4)
        self.assertRegex(missing.log(), r"has no model at /no/such/model \(--model on the worker names another path\)")

    def test_another_build_is_refused(self):
        head = self.head_that_waits()
        build = head.wait_for(r"tutti +([\d.]+) \(([0-9a-f]{7})\)").group(2)
        # The same program with another build id: the linker's note is found by its header and changed.
        code = pathlib.Path(BINARY).read_bytes()
        note = code.index(bytes([4, 0, 0, 0, 20, 0, 0, 0, 3, 0, 0, 0]) + b"GNU\0") + 16
        self.assertEqual(code[note:note + 4].hex()[:7], build)
        other = pathlib.Path(self.folder.name) / "tutti-other"
        other.write_bytes(code[:note] + bytes(20) + code[note + 20:])
        other.chmod(0o755)
        worker = self.worker(binary=str(other))
        self.assertEqual(worker.wait_exit(), 4)
        self.assertRegex(worker.log(), rf"the nodes differ. Exit 4\n.*\n.*build +[\d.]+ \({build}\) +[\d.]+ \(0000000\)")

    def test_sockets_that_say_nothing_hold_nobody_up(self):
        head = self.head_that_waits()
        silent = [socket.create_connection(("127.0.0.1", self.control_port)) for _ in range(40)]
        for connection in silent[:20]:
            connection.sendall(b"\x16\x03\x01")  # the beginning of a TLS handshake
        self.worker()
        head.wait_for(READY)
        self.assertNotEqual(self.complete(), "")
        for connection in silent:
            connection.close()

    def test_the_token_is_never_logged(self):
        head = self.head_that_waits()
        worker = self.worker("--debug")
        worker.wait_for(r"ready +rank 1 serves")
        token = self.start("token", env={"TUTTI_CLUSTER_TOKEN": None})
        self.assertEqual(token.wait_exit(), 0)
        kept = pathlib.Path(token.stdout.strip())
        self.assertEqual(kept.stat().st_mode & 0o777, 0o600)
        for process in (head, worker, token):
            for secret in (TOKEN[-32:], kept.read_text().strip()[-32:]):
                self.assertNotIn(secret, process.log() + process.stdout)

    def test_nobody_comes(self):
        head = self.serve("-tp", 2, "--nnodes", 2, "--ready-timeout", 1)
        self.assertEqual(head.wait_exit(), 4)
        self.assertRegex(head.log(), r"error +need 2 ranks, have 1 on .* after 1 s; nobody tried to join.*`tutti worker` on the other nodes.* --ready-timeout gives them longer. Exit 4")

    def test_taken_ports_name_the_process(self):
        with socket.socket() as taken:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            taken.bind(("127.0.0.1", self.port))
            taken.listen()
            head = self.serve()
            self.assertEqual(head.wait_exit(), 2)
        self.assertRegex(head.log(), rf"port {self.port} is taken by pid {os.getpid()} \(.*\): --port {self.port + 1}, or end it. Exit 2")
        with socket.socket() as taken:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            taken.bind(("0.0.0.0", self.control_port))
            taken.listen()
            head = self.serve()
            self.assertEqual(head.wait_exit(), 2)
        self.assertRegex(head.log(), rf"port {self.control_port} is taken by pid {os.getpid()}")
        # A head there has the 100 ports after its own, too.
        self.assertGreater(int(head.wait_for(r"--master-port (\d+), or end it").group(1)), self.control_port + 100)

    def test_taken_data_ports_are_named(self):
        with socket.socket() as taken:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            head = self.head_that_waits("--data-ports", f"{port}-{port}")
            self.worker()
            self.assertEqual(head.wait_exit(), 5)
        self.assertRegex(head.log(), rf"rank [01] .*connecting ranks: no free port on 127.0.0.1 between {port} and {port}: "
                                     r"widen the range with --data-ports")

    def test_words_for_typing_errors(self):
        for arguments, message in [(["serve", "no-such-model"], 'no model "no-such-model" here'),
                                   (["serve", self.model, "--tensor-paralel-size", "2"], "near: --tensor-parallel-size"),
                                   (["serv"], 'unknown command "serv"; near: serve'),
                                   (["serve", self.model, "--comm-dtype", "int4"], "--comm-dtype int4: expected auto, int8 or fp8"),
                                   (["serve", self.model, "--data-ports", "9-1"], "--data-ports 9-1: expected a range"),
                                   (["serve", self.model, "--tcp-streams", "0"], "--tcp-streams 0: expected 1 to 64"),
                                   (["serve", self.model, "-tp", "2", "--tensor-split", "2"], "--tensor-split has 1 numbers"),
                                   (["serve", self.model, "-dp", "2"], "--port 8001 --master-port 29601 for the second"),
                                   (["serve", self.model, "--enable-lora"], "LoRA adapters are not served")]:
            process = self.start(*arguments)
            self.assertEqual(process.wait_exit(), 2)
            self.assertIn(message, process.log())


class Losses(ClusterTest):
    """A running cluster loses a part."""

    def two_nodes(self):
        head = self.serve("-tp", 2, "--nnodes", 2, "--master-addr", "127.0.0.1")
        head.wait_for(r"waiting +for 1 more rank")
        worker = self.start("worker", "--master-ip", "127.0.0.1", "--master-port", self.control_port)
        head.wait_for(READY)
        worker.wait_for(r"ready +rank 1 serves")
        return head, worker

    def lose(self, head, action, seconds):
        """Runs `action` in mid-answer; the stream must end with an error, which is returned, in time."""
        begin = None
        last = {}
        for number, event in enumerate(self.stream()):
            last = event
            if number == 3:
                action()
                begin = time.monotonic()
        self.assertIsNotNone(begin, "the answer ended before the loss")
        self.assertLess(time.monotonic() - begin, seconds)
        self.assertIn("error", last, head.log())
        self.assertEqual(head.wait_exit(), 5, head.log())
        self.assertRegex(head.log(), r"error +.*\. 1 open request ends with this error\n")
        return last["error"]["message"]

    def test_a_killed_local_rank(self):
        head = self.serve("-tp", 2)
        head.wait_for(READY)
        victim = children_of(head.pid)[1]
        message = self.lose(head, lambda: os.kill(victim, signal.SIGKILL), 3)
        self.assertRegex(message, rf"rank [01] \(.*, pid {victim}\) was killed by signal 9")

    def test_a_rank_killed_while_nobody_asks(self):
        head = self.serve("-tp", 2)
        head.wait_for(READY)
        victim = children_of(head.pid)[1]
        os.kill(victim, signal.SIGKILL)
        self.assertEqual(head.wait_exit(10), 5, head.log())
        self.assertRegex(head.log(), rf"error +rank [01] \(.*, pid {victim}\) was killed by signal 9 \(Killed\)\. No open requests end with this error")

    def test_a_killed_remote_rank(self):
        head, worker = self.two_nodes()
        victim = children_of(worker.pid)[0]
        message = self.lose(head, lambda: os.kill(victim, signal.SIGKILL), 10)
        self.assertRegex(message, rf"rank 1 \(.*, pid {victim}\) was killed by signal 9")
        worker.wait_for(r"waiting +for the head")

    def test_the_other_node_of_the_same_command_ends_with_the_cluster(self):
        flags = ["-tp", 2, "--nnodes", 2, "--master-addr", "127.0.0.1"]
        head = self.serve(*flags, "--node-rank", 0)
        other = self.serve(*flags, "--node-rank", 1)
        head.wait_for(READY)
        victim = children_of(head.pid)[0]
        self.assertRegex(self.lose(head, lambda: os.kill(victim, signal.SIGKILL), 3), rf"rank 0 \(.*, pid {victim}\) was killed")
        self.assertEqual(other.wait_exit(), 5, other.log())
        self.assertRegex(other.log(), r"error +the cluster was lost, this node leaves. Exit 5")

    def test_a_killed_worker_takes_its_ranks_along(self):
        head, worker = self.two_nodes()
        message = self.lose(head, lambda: worker.signal(signal.SIGKILL), 10)
        self.assertRegex(message, r"rank 1 \(")

    def test_a_stopped_rank_is_told_from_a_dead_one(self):
        head, worker = self.two_nodes()
        victim = children_of(worker.pid)[0]
        message = self.lose(head, lambda: os.kill(victim, signal.SIGSTOP), 20)
        self.assertRegex(message, rf"rank 1 \(.*, pid {victim}\) is stopped \(process state T\)")

    def test_a_killed_head_leaves_no_ranks_and_the_worker_waits(self):
        head, worker = self.two_nodes()
        remote = children_of(worker.pid)
        head.ranks.update(children_of(head.pid))
        head.signal(signal.SIGKILL)
        head.process.wait()
        worker.wait_for(r"the head at .* is gone(.|\n)*waiting +for the head", 15)
        self.assertEqual(children_of(worker.pid), [])
        self.assertEqual(len(remote), 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
