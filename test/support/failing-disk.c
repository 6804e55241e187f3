// Loaded before a program (LD_PRELOAD), so that nothing can be made below the folder TEST_DISK
// while a file TEST_FAULT holds the number of an error (errno(3)): every mkdir and every open that
// makes a file fails with it, as on a disk whose quota is used up. A negative number is the error
// of fsync and fdatasync alone, as on a disk that breaks while it writes.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

static int number_said(void) {
  const char* name = getenv("TEST_FAULT");
  FILE* file = name == NULL ? NULL : fopen(name, "re");
  int found = 0;
  if (file == NULL) return 0;
  if (fscanf(file, "%d", &found) != 1) found = 0;
  fclose(file);
  return found;
}

static int fault(const char* path) {
  const int found = number_said();
  return found > 0 && lies_below(path) ? found : 0;
}

static int opened(const char* call, const char* path, int flags, mode_t mode) {
  int (*real)(const char*, int, ...) = (int (*)(const char*, int, ...))dlsym(RTLD_NEXT, call);
  const int makes = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
  const int number = makes ? fault(path) : 0;
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
    return opened(#name, path, flags, mode);          \
  }
OPEN(open)
OPEN(open64)

int mkdir(const char* path, mode_t mode) {
  int (*real)(const char*, mode_t) = (int (*)(const char*, mode_t))dlsym(RTLD_NEXT, "mkdir");
  const int number = fault(path);
  if (number == 0) return real(path, mode);
  errno = number;
  return -1;
}

static int synced(const char* call, int fd) {
  int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, call);
  const char* disk = getenv("TEST_DISK");
  const int number = -number_said();
  char link[64];
  char path[PATH_MAX];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t length = number > 0 && disk != NULL ? readlink(link, path, sizeof path - 1) : -1;
  if (length < 0) return real(fd);
  path[length] = 0;
  if (strncmp(path, disk, strlen(disk)) != 0) return real(fd);
  errno = number;
  return -1;
}

int fsync(int fd) { return synced("fsync", fd); }
int fdatasync(int fd) { return synced("fdatasync", fd); }
