// The all-reduce of an MPI library between two ranks, measured as `tutti bench comm` measures ours: the
// peer of bench/comm.py. Rank 0 prints one JSON object.
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  std::vector<long> sizes;
  for (int i = 1; i < argc; ++i) sizes.push_back(std::atol(argv[i]));
  if (sizes.empty()) sizes = {1024, 8192, 65536, 1048576};

  double payload = 0;
  if (rank == 0) std::printf("{\"library\": \"mpi\", \"ranks\": %d, \"results\": [", size);
  for (size_t s = 0; s < sizes.size(); ++s) {
    const int count = static_cast<int>(sizes[s] / static_cast<long>(sizeof(float)));
    const int calls =
        static_cast<int>(std::clamp(200'000'000L / std::max(sizes[s], 1L), 10L, 3000L));
    std::vector<float> data(static_cast<size_t>(count), 0.0f);
    std::vector<double> times;
    for (int i = -calls / 10 - 1; i < calls; ++i) {
      const double start = MPI_Wtime();
      MPI_Allreduce(MPI_IN_PLACE, data.data(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      if (i >= 0) times.push_back(1e6 * (MPI_Wtime() - start));
      payload += static_cast<double>(sizes[s]);
    }
    std::sort(times.begin(), times.end());
    if (rank == 0) {
      std::printf("%s{\"bytes\": %ld, \"calls\": %d, \"p50_us\": %.2f, \"p99_us\": %.2f}",
                  s == 0 ? "" : ", ", sizes[s], calls, times[times.size() / 2],
                  times[times.size() * 99 / 100]);
    }
  }
  if (rank == 0) std::printf("], \"payload_bytes\": %.0f}\n", payload);
  MPI_Finalize();
  return 0;
}
