"""Two network namespaces joined by a veth pair, as two nodes on one machine, with a link whose rate can be set."""

import os
import subprocess

# Rate and burst of `tc tbf` at both ends. The small bursts let messages the size of a token's feel the limit.
LINKS = {"none": None, "1gbit": ("1gbit", "6kb"), "100mbit": ("100mbit", "3100")}


class TwoNodes:
    """A context manager; needs root and iproute2. Nothing is left behind."""

    def __init__(self):
        self.netns = [f"tutti-bench-{os.getpid()}-{side}" for side in "ab"]
        self.addresses = ["10.99.8.1", "10.99.8.2"]
        self.veth = "veth0"

    def __enter__(self):
        for netns in self.netns:
            self.ip("netns", "add", netns)
        self.ip("link", "add", self.veth, "netns", self.netns[0], "type", "veth", "peer", "name", self.veth, "netns", self.netns[1])
        for netns, address in zip(self.netns, self.addresses):
            self.ip("-n", netns, "addr", "add", f"{address}/24", "dev", self.veth)
            self.ip("-n", netns, "link", "set", "lo", "up")
            self.ip("-n", netns, "link", "set", self.veth, "up")
        return self

    def __exit__(self, *_):
        for netns in self.netns:
            subprocess.run(["ip", "netns", "del", netns], check=False, capture_output=True)

    @staticmethod
    def ip(*arguments):
        subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)

    def set_link(self, link):
        for netns in self.netns:
            subprocess.run(["tc", "-n", netns, "qdisc", "del", "dev", self.veth, "root"], check=False, capture_output=True)
            if LINKS[link] is None:
                continue
            rate, burst = LINKS[link]
            subprocess.run(["tc", "-n", netns, "qdisc", "add", "dev", self.veth, "root", "tbf", "rate", rate, "burst", burst,
                            "latency", "50ms"], check=True, capture_output=True, text=True)

    def cut(self):
        self.ip("-n", self.netns[1], "link", "set", self.veth, "down")

    def mend(self):
        self.ip("-n", self.netns[1], "link", "set", self.veth, "up")

    def sent_bytes(self):
        """What each end has put on the wire."""
        sent = []
        for node in (0, 1):
            table = subprocess.run(self.command(node, ["cat", "/proc/net/dev"]), check=True, capture_output=True, text=True).stdout
            line = next(line for line in table.splitlines() if line.strip().startswith(self.veth + ":"))
            sent.append(int(line.split(":")[1].split()[8]))
        return sent

    def command(self, node, command):
        """The command line that runs `command` on a node (0 or 1). The process is the command's own, with its id."""
        return ["nsenter", f"--net=/run/netns/{self.netns[node]}", *map(str, command)]
