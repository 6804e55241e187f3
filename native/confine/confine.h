#pragma once

#include <cstddef>

namespace radserve {

/// Takes from this process, for all its threads and for good, what decoding a foreign file does not
/// need. From then on it cannot open a file or a socket, start a program or a process, map memory
/// for code, or touch another process; what is open stays open. It leaves no core file, and is
/// killed when the thread that started it ends.
///
/// Forbidden calls fail with EPERM. Those that no decoder makes by mistake (starting a program or a
/// process, looking into or signalling another one) end the process with SIGSYS, as does a call of
/// another architecture.
///
/// most_data: bytes of writable private memory (RLIMIT_DATA) that the process may have. Throws
/// std::system_error where the kernel refuses (it has no seccomp, or somebody outside forbids it);
/// then nothing foreign may be decoded here.
void Confine(size_t most_data);

/// From now on this process may have so many bytes of writable private memory (RLIMIT_DATA), leaves
/// no core file, and is the first that the system ends where memory runs out. It may be called
/// again with another number. Throws std::system_error.
void LimitData(size_t most_data);

/// From now on this process may use so many seconds of processor time more, and the system ends it
/// with SIGXCPU when it has (RLIMIT_CPU); 0 takes the limit away. Throws std::system_error.
void LimitProcessorTime(size_t seconds);

}  // namespace radserve
