/*
 * A read-only file system (FUSE) that shows a folder as a share may show it: its inode numbers are
 * next to each other above 2^53; what has "busy" in its name cannot be opened (EBUSY); what has
 * "ghost" in its name is listed and not there. It goes when standard input ends. Needs root.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fuse.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_NODES 256
#define MOST_BYTES (1 << 17)
#define FIRST_INODE (1ull << 60)

struct node {
  int parent;
  char name[NAME_MAX + 1];
  char path[PATH_MAX];
  int is_folder;
  off_t size;
};

/* The number of a node in requests is its place here; 0 is none, and 1 the root. */
static struct node nodes[MOST_NODES];
static int count = 1;
static int fuse;

static void add(int parent, const char* name, const char* path) {
  struct stat facts;
  if (count == MOST_NODES || stat(path, &facts) != 0) return;
  const int own = count++;
  struct node* node = &nodes[own];
  node->parent = parent;
  snprintf(node->name, sizeof node->name, "%s", name);
  snprintf(node->path, sizeof node->path, "%s", path);
  node->is_folder = S_ISDIR(facts.st_mode);
  node->size = facts.st_size;
  if (!node->is_folder) return;
  DIR* folder = opendir(path);
  for (struct dirent* entry; (entry = readdir(folder)) != NULL;) {
    char below[PATH_MAX + NAME_MAX + 2];
    snprintf(below, sizeof below, "%s/%s", path, entry->d_name);
    if (entry->d_name[0] != '.') add(own, entry->d_name, below);
  }
  closedir(folder);
}

static struct fuse_attr attributes(int of) {
  const struct node* node = &nodes[of];
  return (struct fuse_attr){
      .ino = FIRST_INODE + (unsigned)of,
      .size = (unsigned long)node->size,
      .mode = node->is_folder ? S_IFDIR | 0755 : S_IFREG | 0644,
      .nlink = 1,
      .blksize = 4096,
  };
}

static void answer(const struct fuse_in_header* asked, int error, const void* body, size_t length) {
  static char bytes[sizeof(struct fuse_out_header) + MOST_BYTES];
  const struct fuse_out_header head = {
      .len = (unsigned)(sizeof head + length), .error = -error, .unique = asked->unique};
  memcpy(bytes, &head, sizeof head);
  if (length > 0) memcpy(bytes + sizeof head, body, length);
  if (write(fuse, bytes, head.len) < 0) return;
}

static void look_up(const struct fuse_in_header* asked, const char* name) {
  for (int i = 2; i < count; i += 1) {
    if (nodes[i].parent != (int)asked->nodeid || strcmp(nodes[i].name, name) != 0) continue;
    if (strstr(name, "ghost") != NULL) break;
    const struct fuse_entry_out found = {.nodeid = (unsigned)i, .attr = attributes(i)};
    answer(asked, 0, &found, sizeof found);
    return;
  }
  answer(asked, ENOENT, NULL, 0);
}

static void list(const struct fuse_in_header* asked, const struct fuse_read_in* from) {
  static char bytes[MOST_BYTES];
  size_t length = 0;
  for (int i = (int)from->offset < 2 ? 2 : (int)from->offset; i < count; i += 1) {
    const struct node* node = &nodes[i];
    const size_t name = strlen(node->name);
    const size_t whole = FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET + name);
    if (node->parent != (int)asked->nodeid) continue;
    if (length + whole > from->size || length + whole > sizeof bytes) break;
    struct fuse_dirent* entry = (struct fuse_dirent*)(bytes + length);
    memset(entry, 0, whole);
    entry->ino = FIRST_INODE + (unsigned)i;
    entry->off = (unsigned)i + 1;
    entry->namelen = (unsigned)name;
    entry->type = node->is_folder ? DT_DIR : DT_REG;
    memcpy(entry->name, node->name, name);
    length += whole;
  }
  answer(asked, 0, bytes, length);
}

static void read_file(const struct fuse_in_header* asked, const struct fuse_read_in* from) {
  static char bytes[MOST_BYTES];
  const int file = open(nodes[asked->nodeid].path, O_RDONLY);
  const size_t most = from->size < sizeof bytes ? from->size : sizeof bytes;
  const ssize_t length = pread(file, bytes, most, (off_t)from->offset);
  close(file);
  answer(asked, length < 0 ? EIO : 0, bytes, length < 0 ? 0 : (size_t)length);
}

static void serve(const struct fuse_in_header* asked, const void* body) {
  const struct fuse_attr_out known = {.attr = attributes((int)(asked->nodeid % MOST_NODES))};
  const struct fuse_open_out opened = {.fh = asked->nodeid};
  switch (asked->opcode) {
    case FUSE_INIT: {
      const struct fuse_init_in* wanted = body;
      const struct fuse_init_out is = {
          .major = FUSE_KERNEL_VERSION, .minor = wanted->minor, .max_write = 4096};
      return answer(asked, 0, &is, sizeof is);
    }
    case FUSE_LOOKUP:
      return look_up(asked, body);
    case FUSE_GETATTR:
      return answer(asked, 0, &known, sizeof known);
    case FUSE_OPEN:
    case FUSE_OPENDIR:
      if (strstr(nodes[asked->nodeid].name, "busy") != NULL) return answer(asked, EBUSY, NULL, 0);
      return answer(asked, 0, &opened, sizeof opened);
    case FUSE_READDIR:
      return list(asked, body);
    case FUSE_READ:
      return read_file(asked, body);
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT:
      return;
    case FUSE_RELEASE:
    case FUSE_RELEASEDIR:
    case FUSE_FLUSH:
    case FUSE_ACCESS:
      return answer(asked, 0, NULL, 0);
    default:
      return answer(asked, ENOSYS, NULL, 0);
  }
}

int main(int words, char** arguments) {
  if (words < 3) return 2;
  add(0, "", arguments[2]);
  fuse = open("/dev/fuse", O_RDWR);
  char options[128];
  snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", fuse);
  const unsigned long flags = MS_NOSUID | MS_NODEV | MS_RDONLY;
  if (fuse < 0 || mount("odd", arguments[1], "fuse", flags, options) != 0) {
    printf("%s\n", strerror(errno));
    return 1;
  }
  puts("mounted");
  fflush(stdout);
  static char bytes[MOST_BYTES + 4096];
  for (;;) {
    struct pollfd ready[] = {{.fd = fuse, .events = POLLIN}, {.fd = STDIN_FILENO, .events = POLLIN}};
    if (poll(ready, 2, -1) < 0) continue;
    if (ready[1].revents != 0) break;
    if (read(fuse, bytes, sizeof bytes) < (ssize_t)sizeof(struct fuse_in_header)) continue;
    serve((const struct fuse_in_header*)bytes, bytes + sizeof(struct fuse_in_header));
  }
  umount2(arguments[1], MNT_DETACH);
  return 0;
}
