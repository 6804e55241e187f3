#include "confine/confine.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <system_error>
#include <utility>
#include <vector>

namespace radserve {
namespace {

#ifndef __x86_64__
#error "The numbers of system calls and the order of their arguments are those of x86-64."
#endif

/// Calls that have this bit are those of x32, whose numbers mean other things
/// (linux/Documentation/userspace-api).
constexpr uint32_t kX32 = 0x40000000;

/// The flags of pthread_create of glibc: a thread, and nothing that a process or a namespace could
/// be made of.
constexpr uint32_t kThread = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD |
                             CLONE_SYSVSEM | CLONE_SETTLS | CLONE_PARENT_SETTID |
                             CLONE_CHILD_CLEARTID;

/// Work on what is open and on memory; waiting, threads, and the clock.
constexpr std::array kAllowed = {
    SYS_read,
    SYS_write,
    SYS_readv,
    SYS_writev,
    SYS_close,
    SYS_munmap,
    SYS_mremap,
    SYS_madvise,
    SYS_brk,
    SYS_futex,
    SYS_sched_yield,
    SYS_sched_getaffinity,
    SYS_rt_sigprocmask,
    SYS_rt_sigreturn,
    SYS_sigaltstack,
    SYS_restart_syscall,
    SYS_exit,
    SYS_exit_group,
    SYS_set_robust_list,
    SYS_rseq,
    SYS_getpid,
    SYS_gettid,
    SYS_clock_gettime,
    SYS_clock_getres,
    SYS_clock_nanosleep,
    SYS_nanosleep,
    SYS_gettimeofday,
    SYS_getrandom,
    SYS_getrusage,
    SYS_sysinfo,
    SYS_epoll_wait,
    SYS_epoll_pwait,
    SYS_epoll_ctl,
    SYS_poll,
};

/// No decoder makes these by mistake.
constexpr std::array kDeadly = {
    SYS_execve,
    SYS_execveat,
    SYS_fork,
    SYS_vfork,
    SYS_kill,
    SYS_tkill,
    SYS_ptrace,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_io_uring_setup,
    SYS_io_uring_enter,
    SYS_io_uring_register,
};

constexpr uint32_t kFail = SECCOMP_RET_ERRNO | EPERM;

/// A program of the kernel's packet filter over seccomp_data (linux/seccomp.h). It falls through to
/// the next rule.
class Filter {
 public:
  Filter() {
    Load(offsetof(seccomp_data, arch));
    filter_.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0));
    Give(SECCOMP_RET_KILL_PROCESS);
    Load(offsetof(seccomp_data, nr));
    filter_.push_back(BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, kX32, 0, 1));
    Give(SECCOMP_RET_KILL_PROCESS);
  }

  void Rule(long call, uint32_t action) {
    OtherwiseSkip(call, 1);
    Give(action);
  }

  /// `action` where the low half of an argument has all of `bits` clear, else EPERM.
  void RuleWithout(long call, int argument, uint32_t bits, uint32_t action) {
    OtherwiseSkip(call, 4);
    Load(Low(argument));
    filter_.push_back(BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, bits, 1, 0));
    Give(action);
    Give(kFail);
  }

  void RuleEqual(long call, int argument, uint32_t value, uint32_t action, uint32_t other) {
    OtherwiseSkip(call, 6);
    Load(Low(argument));
    UnlessEqual(value, 3);
    Load(Low(argument) + sizeof(uint32_t));
    UnlessEqual(0, 1);
    Give(action);
    Give(other);
  }

  std::vector<sock_filter> Finish() && {
    Give(kFail);
    return std::move(filter_);
  }

 private:
  static uint32_t Low(int argument) {
    return static_cast<uint32_t>(offsetof(seccomp_data, args) +
                                 static_cast<size_t>(argument) * sizeof(uint64_t));
  }
  void Add(int code, uint32_t k) { filter_.push_back(BPF_STMT(static_cast<uint16_t>(code), k)); }
  void Load(size_t offset) { Add(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offset)); }
  void Give(uint32_t action) { Add(BPF_RET | BPF_K, action); }
  /// Leaps over so many instructions unless the loaded value is `value`.
  void UnlessEqual(uint32_t value, uint8_t over) {
    filter_.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, over));
  }
  /// The number of the call is loaded only after this: each rule that loads an argument ends in a
  /// return.
  void OtherwiseSkip(long call, uint8_t over) { UnlessEqual(static_cast<uint32_t>(call), over); }

  std::vector<sock_filter> filter_;
};

std::vector<sock_filter> MakeFilter() {
  Filter made;
  for (const long call : kAllowed) made.Rule(call, SECCOMP_RET_ALLOW);
  for (const long call : kDeadly) made.Rule(call, SECCOMP_RET_KILL_PROCESS);
  // Memory for data, never for code.
  made.RuleWithout(SYS_mmap, 2, PROT_EXEC, SECCOMP_RET_ALLOW);
  made.RuleWithout(SYS_mprotect, 2, PROT_EXEC, SECCOMP_RET_ALLOW);
  made.RuleEqual(SYS_clone, 0, kThread, SECCOMP_RET_ALLOW, SECCOMP_RET_KILL_PROCESS);
  // Its flags lie in memory, where a filter cannot see them: glibc then takes clone.
  made.Rule(SYS_clone3, SECCOMP_RET_ERRNO | ENOSYS);
  // abort() signals its own thread.
  made.RuleEqual(SYS_tgkill, 0, static_cast<uint32_t>(getpid()), SECCOMP_RET_ALLOW,
                 SECCOMP_RET_KILL_PROCESS);
  // Reading its own limits; new ones would be the third argument.
  made.RuleEqual(SYS_prlimit64, 2, 0, SECCOMP_RET_ALLOW, kFail);
  return std::move(made).Finish();
}

void Check(long result, const char* what) {
  if (result != 0) throw std::system_error(errno, std::generic_category(), what);
}

void Limit(__rlimit_resource resource, rlim_t most, const char* what) {
  rlimit found{};
  Check(getrlimit(resource, &found), what);
  if (found.rlim_max != RLIM_INFINITY && found.rlim_max < most) most = found.rlim_max;
  const rlimit wanted{most, most};
  Check(setrlimit(resource, &wanted), what);
}

/// Where memory runs out the system ends this process before others. Only a wish: without /proc it
/// is not heard.
void OfferForMemory() {
  const int file = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (file < 0) return;
  [[maybe_unused]] const ssize_t written = write(file, "1000", 4);
  close(file);
}

/// The runtime's own handlers of a crash restore terminals and signals by calls that are refused
/// here, and may wait for each other for ever; a crash has to end the process, so that its work
/// fails now and not at its deadline.
void CrashAtOnce() {
  for (const int signal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGABRT, SIGSYS})
    if (std::signal(signal, SIG_DFL) == SIG_ERR)
      throw std::system_error(errno, std::generic_category(), "signal");
}

}  // namespace

void LimitData(size_t most_data) {
  OfferForMemory();
  Limit(RLIMIT_CORE, 0, "RLIMIT_CORE");
  rlimit found{};
  Check(getrlimit(RLIMIT_DATA, &found), "RLIMIT_DATA");
  found.rlim_cur = std::min<rlim_t>(most_data, found.rlim_max);
  Check(setrlimit(RLIMIT_DATA, &found), "RLIMIT_DATA");
}

void LimitProcessorTime(size_t seconds) {
  rusage used{};
  Check(getrusage(RUSAGE_SELF, &used), "getrusage");
  rlimit found{};
  Check(getrlimit(RLIMIT_CPU, &found), "RLIMIT_CPU");
  // Both parts are cut to whole seconds
  const auto so_far = static_cast<rlim_t>(used.ru_utime.tv_sec + used.ru_stime.tv_sec + 2);
  found.rlim_cur =
      seconds == 0 ? found.rlim_max : std::min<rlim_t>(so_far + seconds, found.rlim_max);
  Check(setrlimit(RLIMIT_CPU, &found), "RLIMIT_CPU");
}

void Confine(size_t most_data) {
  OfferForMemory();
  CrashAtOnce();
  Limit(RLIMIT_DATA, most_data, "RLIMIT_DATA");
  Limit(RLIMIT_CORE, 0, "RLIMIT_CORE");
  Limit(RLIMIT_FSIZE, 0, "RLIMIT_FSIZE");
  Check(prctl(PR_SET_PDEATHSIG, SIGKILL), "PR_SET_PDEATHSIG");
  Check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "PR_SET_NO_NEW_PRIVS");
  std::vector<sock_filter> program = MakeFilter();
  const sock_fprog given{static_cast<unsigned short>(program.size()), program.data()};
  const long result =
      syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &given);
  // A number above zero is the thread that could not be given the filter.
  if (result > 0) errno = ESRCH;
  Check(result, "seccomp");
}

}  // namespace radserve
