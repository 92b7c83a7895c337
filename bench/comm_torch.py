#!/usr/bin/env python3
"""The collectives of `tutti bench comm` through PyTorch and NCCL, one process a GPU, timed the same way: captured graphs of calls,
the device's events, medians of nine. Prints one JSON object of the same form.

    bench/comm_torch.py --ranks 2 --collectives all-reduce,all-gather --sizes 1024,16384

With --netns and --addresses (one for each rank) the ranks are nodes: each sees its own GPU alone, and NCCL uses sockets.
"""

import argparse
import json
import os
import socket
import statistics

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

ROUNDS = 9


def call(name, send, recv, rank, ranks):
    if name == "all-reduce":
        dist.all_reduce(send)
    elif name == "all-gather":
        dist.all_gather_into_tensor(recv, send)
    elif name == "reduce-scatter":
        dist.reduce_scatter_tensor(send, recv)
    elif name == "all-to-all":
        dist.all_to_all_single(recv, send)
    elif rank == 0:
        dist.send(send, ranks - 1)
        dist.recv(recv, ranks - 1)
    elif rank == ranks - 1:
        dist.recv(recv, 0)
        dist.send(send, 0)


def tensors(name, count, ranks):
    """`send` and `recv` as each collective wants them; `count` elements are what that calls a message."""
    whole = count * ranks
    sizes = {"all-gather": (count, whole), "reduce-scatter": (count, whole), "all-to-all": (whole, whole)}
    send, recv = sizes.get(name, (count, count))
    return [torch.rand(n, device="cuda").add_(0.5).to(torch.bfloat16) for n in (send, recv)]


def measure(name, count, rank, ranks):
    send, recv = tensors(name, count, ranks)
    calls = 10 if 2 * count > 4 << 20 else 100
    for _ in range(3):
        call(name, send, recv, rank, ranks)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            call(name, send, recv, rank, ranks)
    times = []
    for turn in range(-1, ROUNDS):
        dist.barrier()
        torch.cuda.synchronize()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        if turn >= 0:
            times.append(1e3 * begin.elapsed_time(end) / calls)
    return times


def become_node(rank, args):
    """Before the first call that asks the driver."""
    namespace = os.open(f"/run/netns/{args.netns[rank]}", os.O_RDONLY)
    os.setns(namespace, os.CLONE_NEWNET)
    os.close(namespace)
    os.environ.update(CUDA_VISIBLE_DEVICES=str(rank), NCCL_HOSTID=args.netns[rank], NCCL_P2P_DISABLE="1", NCCL_SHM_DISABLE="1",
                      NCCL_SOCKET_IFNAME=args.interface, GLOO_SOCKET_IFNAME=args.interface)


def run(rank, args, results):
    device = rank
    if args.netns:
        become_node(rank, args)
        device = 0
    os.environ.update(MASTER_ADDR=args.addresses[0] if args.netns else "127.0.0.1", MASTER_PORT=str(args.port))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", rank=rank, world_size=args.ranks, device_id=torch.device("cuda", device))
    rows = []
    for name in args.collectives.split(","):
        for size in map(int, args.sizes.split(",")):
            times = measure(name, size // 2, rank, args.ranks)
            way = 0.5 if name == "send-recv" else 1.0
            rows.append({"collective": name, "bytes": size, "calls": len(times), "p50_us": way * statistics.median(times),
                         "min_us": way * min(times), "p99_us": way * max(times)})
    if rank == 0:
        results.put(rows)
    dist.barrier()
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--collectives", default="all-reduce")
    parser.add_argument("--sizes", default="1024,16384,65536,262144,1048576,4194304,33554432")
    parser.add_argument("--netns", default=[], type=lambda text: text.split(","))
    parser.add_argument("--addresses", default=[], type=lambda text: text.split(","))
    parser.add_argument("--interface", default="veth0")
    args = parser.parse_args()
    if args.netns and not len(args.netns) == len(args.addresses) == args.ranks:
        parser.error(f"--netns and --addresses need one entry for each of the {args.ranks} ranks")
    args.port = free_port()
    context = mp.get_context("spawn")
    results = context.SimpleQueue()
    spawned = mp.spawn(run, (args, results), nprocs=args.ranks, join=False)
    rows = results.get()
    while not spawned.join():
        pass
    version = ".".join(map(str, torch.cuda.nccl.version()))
    print(json.dumps({"library": f"NCCL {version} through PyTorch {torch.__version__}", "transport": "nccl", "ranks": args.ranks,
                      "dtype": "BF16", "results": rows}))


if __name__ == "__main__":
    main()
