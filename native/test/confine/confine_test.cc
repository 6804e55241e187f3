#include "confine/confine.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <functional>
#include <set>
#include <thread>

#include "check.h"

using namespace radserve;
using namespace radserve::test;

namespace {

constexpr int kCould = 0;

/// In a process of its own: the error that a call gives once the process is confined, or minus the
/// signal that ends it.
int Confined(const std::function<long()>& call) {
  const pid_t child = fork();
  if (child == 0) {
    Confine(size_t{1} << 40);
    const long result = call();
    _exit(result >= 0 ? kCould : errno);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

/// The same for a call by its number.
int ConfinedCall(long number, long first = 0, long second = 0, long third = 0) {
  return Confined([=] { return syscall(number, first, second, third); });
}

long Map(int protection) {
  void* found = mmap(nullptr, 4096, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return found == MAP_FAILED ? -1 : 0;
}

}  // namespace

TEST("files and sockets, in every way to open them") {
  const long path = reinterpret_cast<long>("/etc/passwd");
  EQUAL(ConfinedCall(SYS_open, path), EPERM);
  EQUAL(ConfinedCall(SYS_openat, AT_FDCWD, path), EPERM);
  EQUAL(ConfinedCall(SYS_openat2, AT_FDCWD, path), EPERM);
  EQUAL(ConfinedCall(SYS_creat, path), EPERM);
  EQUAL(ConfinedCall(SYS_memfd_create, path), EPERM);
  EQUAL(ConfinedCall(SYS_socket, AF_INET, SOCK_STREAM), EPERM);
  EQUAL(ConfinedCall(SYS_socketpair, AF_UNIX, SOCK_STREAM), EPERM);
  EQUAL(ConfinedCall(SYS_connect, 0), EPERM);
  EQUAL(ConfinedCall(SYS_bind, 0), EPERM);
  EQUAL(ConfinedCall(SYS_sendmsg, 0), EPERM);
  EQUAL(ConfinedCall(SYS_dup, 0), EPERM);
  EQUAL(ConfinedCall(SYS_mount, 0), EPERM);
  EQUAL(ConfinedCall(SYS_bpf, 0), EPERM);
  EQUAL(ConfinedCall(SYS_prctl, 0), EPERM);
  EQUAL(ConfinedCall(SYS_unshare, CLONE_NEWUSER), EPERM);
  EQUAL(ConfinedCall(SYS_setpriority, 0), EPERM);
}
END;

TEST("programs, processes, and looking into others end the process") {
  for (const long number :
       {SYS_execve, SYS_execveat, SYS_fork, SYS_vfork, SYS_kill, SYS_tkill, SYS_ptrace,
        SYS_process_vm_readv, SYS_process_vm_writev, SYS_io_uring_setup})
    EQUAL(ConfinedCall(number), -SIGSYS);
  EQUAL(ConfinedCall(SYS_clone, SIGCHLD), -SIGSYS);
  EQUAL(ConfinedCall(SYS_clone, CLONE_VM | CLONE_VFORK | SIGCHLD), -SIGSYS);
  EQUAL(ConfinedCall(SYS_tgkill, getpid(), getpid()), -SIGSYS);
  EQUAL(ConfinedCall(SYS_clone3, 0), ENOSYS);
}
END;

TEST("no call but those that are named here goes through") {
  const std::set<long> named = {
      // Allowed, with arguments or without
      SYS_read, SYS_write, SYS_readv, SYS_writev, SYS_close, SYS_mmap, SYS_mprotect, SYS_munmap,
      SYS_mremap, SYS_madvise, SYS_brk, SYS_futex, SYS_sched_yield, SYS_sched_getaffinity,
      SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_sigaltstack, SYS_restart_syscall, SYS_exit,
      SYS_exit_group, SYS_set_robust_list, SYS_rseq, SYS_getpid, SYS_gettid, SYS_clock_gettime,
      SYS_clock_getres, SYS_clock_nanosleep, SYS_nanosleep, SYS_gettimeofday, SYS_getrandom,
      SYS_getrusage, SYS_sysinfo, SYS_epoll_wait, SYS_epoll_pwait, SYS_epoll_ctl, SYS_poll,
      SYS_clone3, SYS_prlimit64,
      // Deadly
      SYS_clone, SYS_fork, SYS_vfork, SYS_execve, SYS_execveat, SYS_kill, SYS_tkill, SYS_tgkill,
      SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev, SYS_io_uring_setup,
      SYS_io_uring_enter, SYS_io_uring_register,
      // uretprobe and uprobe, which the kernel keeps from no filter; they do nothing where nobody
      // traces
      335, 336};
  EQUAL(Confined([&] {
          for (long number = 0; number < 1024; ++number)
            if (!named.contains(number) &&
                (syscall(number, -1L, -1L, -1L, -1L, -1L, -1L) != -1 || errno != EPERM))
              return 0L;
          errno = EPERM;
          return -1L;
        }),
        EPERM);
}
END;

TEST("numbers of x32 end the process") { EQUAL(ConfinedCall(0x40000000 | SYS_read), -SIGSYS); }
END;

TEST("memory for data, and none for code") {
  EQUAL(Confined([] { return Map(PROT_READ | PROT_WRITE); }), kCould);
  EQUAL(Confined([] { return Map(PROT_READ | PROT_EXEC); }), EPERM);
  EQUAL(Confined([] {
          void* data =
              mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
          return static_cast<long>(mprotect(data, 4096, PROT_READ | PROT_EXEC));
        }),
        EPERM);
}
END;

TEST("what decoding needs works: threads, the clock, its own limits, its own end") {
  EQUAL(Confined([] {
          int found = -1;
          std::thread([&] { found = 0; }).join();
          return static_cast<long>(found);
        }),
        kCould);
  EQUAL(Confined([] { return sysconf(_SC_OPEN_MAX) > 0 ? 0L : -1L; }), kCould);
  EQUAL(Confined([]() -> long { std::abort(); }), -SIGABRT);
}
END;

TEST("threads that run already are confined too") {
  EQUAL(Confined([] { return 0L; }), kCould);
  const pid_t child = fork();
  if (child == 0) {
    int ready[2];
    if (pipe(ready) != 0) _exit(1);
    int found = -1;
    std::thread before([&] {
      char byte = 0;
      if (read(ready[0], &byte, 1) != 1) return;
      found = open("/etc/passwd", O_RDONLY) < 0 ? errno : 0;
    });
    Confine(size_t{1} << 40);
    if (write(ready[1], "x", 1) != 1) _exit(1);
    before.join();
    _exit(found == EPERM ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EQUAL(status, 0);
}
END;
