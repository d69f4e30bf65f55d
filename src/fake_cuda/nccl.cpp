// NCCL: every call says success and is recorded. No data moves: a rank finds what it had.
#include <nccl.h>

#include <cstdio>
#include <cstring>
#include <mutex>
#include <string>
#include <unordered_set>

#include "fake_cuda/device.h"
#include "fake_cuda/memory.h"
#include "fake_cuda/record.h"

using namespace octavo::fake_cuda;

struct ncclComm {
  int ranks, rank, device;
};

namespace {

std::uint64_t bytes_of(std::size_t count, ncclDataType_t type) {
  switch (type) {
    case ncclFloat16:
    case ncclBfloat16:
      return count * 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return count * 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
      return count * 8;
    default:
      return count;  // eight bits
  }
}

// Names with count, type and communicator, made once each: the record keeps pointers.
const char* kept_name(const std::string& text) {
  static std::mutex mutex;
  static auto* const names = new std::unordered_set<std::string>;
  const std::lock_guard lock(mutex);
  return names->insert(text).first->c_str();
}

ncclResult_t collective(const char* entry, std::size_t count, ncclDataType_t type, ncclComm_t comm,
                        cudaStream_t stream, const std::string& more = "") {
  if (comm == nullptr) return ncclInvalidArgument;
  char communicator[32];
  std::snprintf(communicator, sizeof communicator, "%p", static_cast<void*>(comm));
  const std::string name = std::string(entry) + " count=" + std::to_string(count) +
                           " type=" + std::to_string(type) + more + " comm=" + communicator;
  Event event = make_event(Kind::kCollective, kept_name(name), stream, bytes_of(count, type));
  event.device = comm->device;
  return submit(stream, event) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

std::string said(const char* key, int value) {
  return std::string(" ") + key + "=" + std::to_string(value);
}

ncclResult_t make_communicator(const std::string& how, ncclComm_t* comm, int ranks, int rank) {
  if (ranks < 1 || rank < 0 || rank >= ranks) return ncclInvalidArgument;
  *comm = new ncclComm{ranks, rank, current_device()};
  record(
      make_event(Kind::kCommunicator, kept_name(how + said("ranks", ranks) + said("rank", rank))));
  return ncclSuccess;
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::memset(id, 0, sizeof *id);
  std::snprintf(id->internal, sizeof id->internal, "fake CUDA device");
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclSuccess ? "no error" : "fake CUDA device: refused";
}
const char* ncclGetLastError(ncclComm_t) {
  return "fake CUDA device: no error";
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId, int rank) {
  return make_communicator("ncclCommInitRank", comm, ranks, rank);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId, int rank,
                                    ncclConfig_t*) {
  return make_communicator("ncclCommInitRank", comm, ranks, rank);
}

ncclResult_t ncclCommInitRankScalable(ncclComm_t* comm, int ranks, int rank, int, ncclUniqueId*,
                                      ncclConfig_t*) {
  return make_communicator("ncclCommInitRank", comm, ranks, rank);
}

ncclResult_t ncclCommInitAll(ncclComm_t* comms, int count, const int* devices) {
  for (int i = 0; i < count; ++i)
    comms[i] = new ncclComm{count, i, devices == nullptr ? i : devices[i]};
  return ncclSuccess;
}

// How many ranks have this color is what the real one learns from them; here nobody hears of the
// others, and the communicator has as many as the one that it was split from.
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* result, ncclConfig_t*) {
  if (comm == nullptr) return ncclInvalidArgument;
  if (color == NCCL_SPLIT_NOCOLOR) {
    *result = nullptr;
    return ncclSuccess;
  }
  return make_communicator("ncclCommSplit" + said("color", color), result, comm->ranks, key);
}

ncclResult_t ncclCommFinalize(ncclComm_t) {
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  return ncclCommDestroy(comm);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* error) {
  *error = ncclSuccess;
  return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  *count = comm->ranks;
  return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
  *device = comm->device;
  return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  *rank = comm->rank;
  return ncclSuccess;
}

ncclResult_t ncclCommRegister(const ncclComm_t, void*, std::size_t, void** handle) {
  *handle = nullptr;
  return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t, void*) {
  return ncclSuccess;
}

ncclResult_t ncclMemAlloc(void** pointer, std::size_t bytes) {
  return allocate_device(pointer, bytes, "ncclMemAlloc") == cudaSuccess ? ncclSuccess
                                                                        : ncclUnhandledCudaError;
}

ncclResult_t ncclMemFree(void* pointer) {
  return free_device(pointer, "ncclMemFree") == cudaSuccess ? ncclSuccess : ncclInvalidArgument;
}

ncclResult_t ncclGroupStart() {
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void*, void*, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return collective("ncclAllReduce", count, type, comm, stream, said("op", op));
}

ncclResult_t ncclReduce(const void*, void*, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                        int root, ncclComm_t comm, cudaStream_t stream) {
  return collective("ncclReduce", count, type, comm, stream, said("op", op) + said("root", root));
}

ncclResult_t ncclBroadcast(const void*, void*, std::size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return collective("ncclBroadcast", count, type, comm, stream, said("root", root));
}

ncclResult_t ncclBcast(void*, std::size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                       cudaStream_t stream) {
  return collective("ncclBcast", count, type, comm, stream, said("root", root));
}

ncclResult_t ncclReduceScatter(const void*, void*, std::size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return collective("ncclReduceScatter", count, type, comm, stream, said("op", op));
}

ncclResult_t ncclAllGather(const void*, void*, std::size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return collective("ncclAllGather", count, type, comm, stream);
}

ncclResult_t ncclAlltoAll(const void*, void*, std::size_t count, ncclDataType_t type,
                          ncclComm_t comm, cudaStream_t stream) {
  return collective("ncclAlltoAll", count, type, comm, stream);
}

ncclResult_t ncclSend(const void*, std::size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return collective("ncclSend", count, type, comm, stream, said("peer", peer));
}

ncclResult_t ncclRecv(void*, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return collective("ncclRecv", count, type, comm, stream, said("peer", peer));
}

}  // extern "C"
