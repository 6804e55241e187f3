/*
 * A share that never answers: a FUSE file system at the folder that is named, whose requests nobody
 * reads. It goes when standard input ends. Needs root.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

int main(int count, char** arguments) {
  if (count < 2) return 2;
  const int fuse = open("/dev/fuse", O_RDWR);
  char options[128];
  snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", fuse);
  if (fuse < 0 || mount("dead", arguments[1], "fuse", MS_NOSUID | MS_NODEV, options) != 0) {
    printf("%s\n", strerror(errno));
    return 1;
  }
  puts("mounted");
  fflush(stdout);
  char byte;
  while (read(STDIN_FILENO, &byte, 1) > 0) continue;
  umount2(arguments[1], MNT_DETACH);
  return 0;
}
