// Sends a file from rank 0 to all other ranks of a launcher: mpirun, srun, or any that sets the rank in the environment.
// Each rank writes it to OUTPUT.RANK. Build: c++ -std=c++17 broadcast.cc $(pkg-config --cflags --libs rdmc)
//
//   export RDMC_SECRET=$(rdmc secret)
//   mpirun -n 3 -x RDMC_SECRET ./broadcast FILE OUTPUT 10.0.0.1:7000 10.0.0.2:7000 10.0.0.3:7000
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <rdmc.hpp>

// The number that a launcher has set in one of these variables.
static std::uint32_t from_environment(std::initializer_list<const char *> names) {
  for (const char *name : names)
    if (const char *value = std::getenv(name)) return static_cast<std::uint32_t>(std::stoul(value));
  throw std::runtime_error("no rank in the environment: start this with mpirun or srun");
}

int main(int argc, char **argv) try {
  if (argc < 4) throw std::runtime_error("usage: broadcast FILE OUTPUT ADDRESS...");
  const std::uint32_t rank = from_environment({"OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID", "RANK"});
  const std::vector<std::string> members(argv + 3, argv + argc);
  const char *secret = std::getenv("RDMC_SECRET");
  const rdmc::milliseconds timeout = std::chrono::minutes(10);
  rdmc::context context(members.at(rank), secret ? secret : "");
  rdmc::group group = context.create_group(1, members, rank);
  if (rank == 0) {
    std::ifstream file(argv[1], std::ios::binary);
    group.send(rdmc::buffer_of(std::string(std::istreambuf_iterator<char>(file), {})), timeout);
    group.close(timeout);
  }
  while (rdmc::message message = group.receive(timeout)) {
    std::ofstream output(argv[2] + ("." + std::to_string(rank)), std::ios::binary);
    std::vector<char> piece(1 << 20);
    while (std::size_t count = message.read(piece.data(), piece.size())) output.write(piece.data(), count);
  }
  context.close(timeout);
} catch (const std::exception &error) {
  std::cerr << "broadcast: " << error.what() << '\n';
  return 1;
}
