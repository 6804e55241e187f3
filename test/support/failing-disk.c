// Loaded before a program (LD_PRELOAD), so that nothing can be made below the folder TEST_DISK
// while a file TEST_FAULT holds the number of an error (errno(3)): every mkdir and every open that
// makes a file fails with it, as on a disk whose quota is used up. A negative number is the error
// of fsync and fdatasync alone, as on a disk that breaks while it writes. With the name of a call
// and a pattern of paths behind it, "5 link *.dcm", that call alone fails, on such paths. What was
// synced is written to the file TEST_SYNCED.
//
// A child between fork and exec runs these functions, too, and the locks of the process's other
// threads are as they were: nothing here takes one. Functions are looked up once, when this is
// loaded, and files are read and written by system calls.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int (*real_open)(const char*, int, ...);
static int (*real_open64)(const char*, int, ...);
static int (*real_mkdir)(const char*, mode_t);
static int (*real_fsync)(int);
static int (*real_fdatasync)(int);
static ssize_t (*real_write)(int, const void*, size_t);
static ssize_t (*real_pwrite)(int, const void*, size_t, off_t);
static ssize_t (*real_pwrite64)(int, const void*, size_t, off_t);
static int (*real_linkat)(int, const char*, int, const char*, int);
static int (*real_unlink)(const char*);
static int (*real_rename)(const char*, const char*);

// A library that is loaded before may call these functions before this runs.
__attribute__((constructor)) static void look_up(void) {
  if (real_linkat != NULL) return;
  *(void**)&real_open = dlsym(RTLD_NEXT, "open");
  *(void**)&real_open64 = dlsym(RTLD_NEXT, "open64");
  *(void**)&real_mkdir = dlsym(RTLD_NEXT, "mkdir");
  *(void**)&real_fsync = dlsym(RTLD_NEXT, "fsync");
  *(void**)&real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
  *(void**)&real_write = dlsym(RTLD_NEXT, "write");
  *(void**)&real_pwrite = dlsym(RTLD_NEXT, "pwrite");
  *(void**)&real_pwrite64 = dlsym(RTLD_NEXT, "pwrite64");
  *(void**)&real_linkat = dlsym(RTLD_NEXT, "linkat");
  *(void**)&real_unlink = dlsym(RTLD_NEXT, "unlink");
  *(void**)&real_rename = dlsym(RTLD_NEXT, "rename");
}

static int lies_below(const char* path) {
  char folder[PATH_MAX];
  const char* disk = getenv("TEST_DISK");
  const char* slash = strrchr(path, '/');
  if (disk == NULL || slash == NULL || (size_t)(slash - path) >= sizeof folder) return 0;
  memcpy(folder, path, (size_t)(slash - path));
  folder[slash - path] = 0;
  char real[PATH_MAX];
  // A file without a name is opened by its folder's path.
  if (realpath(path, real) == NULL && realpath(folder, real) == NULL) return 0;
  return strncmp(real, disk, strlen(disk)) == 0;
}

struct said {
  int number;
  char call[32];
  char paths[256];
};

static struct said what_is_said(void) {
  const char* name = getenv("TEST_FAULT");
  struct said found = {0};
  char text[512];
  const long file = name == NULL ? -1 : syscall(SYS_openat, AT_FDCWD, name, O_RDONLY | O_CLOEXEC);
  if (file < 0) return found;
  const long length = syscall(SYS_read, file, text, sizeof text - 1);
  syscall(SYS_close, file);
  text[length < 0 ? 0 : length] = 0;
  if (sscanf(text, "%d %31s %255[^\n]", &found.number, found.call, found.paths) < 1) found.number = 0;
  return found;
}

// The number of the error of a call on a path; 0 of none.
static int fault(const char* call, const char* path) {
  const struct said said = what_is_said();
  if (said.number <= 0 || !lies_below(path)) return 0;
  if (said.call[0] == 0) return strcmp(call, "open") == 0 || strcmp(call, "mkdir") == 0 ? said.number : 0;
  return strcmp(call, said.call) == 0 && fnmatch(said.paths, path, 0) == 0 ? said.number : 0;
}

// The path of an open file below the folder; NULL of any other.
static const char* path_of(int fd, char* path, size_t most) {
  const char* disk = getenv("TEST_DISK");
  char link[64];
  if (disk == NULL) return NULL;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t length = readlink(link, path, most - 1);
  if (length < 0) return NULL;
  path[length] = 0;
  return strncmp(path, disk, strlen(disk)) == 0 ? path : NULL;
}

static int opened(int (*real)(const char*, int, ...), const char* path, int flags, mode_t mode) {
  const int makes = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
  const int number = makes ? fault("open", path) : 0;
  if (number == 0) return real(path, flags, mode);
  errno = number;
  return -1;
}

#define OPEN(name)                                    \
  int name(const char* path, int flags, ...) {        \
    va_list more;                                     \
    va_start(more, flags);                            \
    const mode_t mode = (mode_t)va_arg(more, unsigned); \
    va_end(more);                                     \
    look_up();                                        \
    return opened(real_##name, path, flags, mode);    \
  }
OPEN(open)
OPEN(open64)

int mkdir(const char* path, mode_t mode) {
  look_up();
  const int number = fault("mkdir", path);
  if (number == 0) return real_mkdir(path, mode);
  errno = number;
  return -1;
}

static void note_synced(const char* path) {
  const char* name = getenv("TEST_SYNCED");
  if (name == NULL || path == NULL) return;
  char line[PATH_MAX + 1];
  const int length = snprintf(line, sizeof line, "%s\n", path);
  const long file =
      syscall(SYS_openat, AT_FDCWD, name, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  if (file < 0) return;
  syscall(SYS_write, file, line, (size_t)length);
  syscall(SYS_close, file);
}

static int synced(int (*real)(int), int fd) {
  char place[PATH_MAX];
  const char* path = path_of(fd, place, sizeof place);
  const struct said said = what_is_said();
  const int is_named = strcmp(said.call, "fsync") == 0 && path != NULL && fnmatch(said.paths, path, 0) == 0;
  const int number = said.call[0] == 0 ? -said.number : is_named ? said.number : 0;
  if (number <= 0 || path == NULL) {
    const int result = real(fd);
    if (result == 0) note_synced(path);
    return result;
  }
  errno = number;
  return -1;
}

int fsync(int fd) {
  look_up();
  return synced(real_fsync, fd);
}

int fdatasync(int fd) {
  look_up();
  return synced(real_fdatasync, fd);
}

static int write_fault(int fd) {
  const struct said said = what_is_said();
  char place[PATH_MAX];
  if (strcmp(said.call, "write") != 0) return 0;
  const char* path = path_of(fd, place, sizeof place);
  return path != NULL && fnmatch(said.paths, path, 0) == 0 ? said.number : 0;
}

ssize_t write(int fd, const void* bytes, size_t length) {
  look_up();
  const int number = write_fault(fd);
  if (number == 0) return real_write(fd, bytes, length);
  errno = number;
  return -1;
}

#define PWRITE(name)                                                 \
  ssize_t name(int fd, const void* bytes, size_t length, off_t at) { \
    look_up();                                                       \
    const int number = write_fault(fd);                              \
    if (number == 0) return real_##name(fd, bytes, length, at);      \
    errno = number;                                                  \
    return -1;                                                       \
  }
PWRITE(pwrite)
PWRITE(pwrite64)

int linkat(int from, const char* old, int to, const char* path, int flags) {
  look_up();
  const int number = fault("link", path);
  if (number == 0) return real_linkat(from, old, to, path, flags);
  errno = number;
  return -1;
}

int unlink(const char* path) {
  look_up();
  const int number = fault("unlink", path);
  if (number == 0) return real_unlink(path);
  errno = number;
  return -1;
}

int rename(const char* old, const char* path) {
  look_up();
  const int number = fault("rename", path);
  if (number == 0) return real_rename(old, path);
  errno = number;
  return -1;
}
