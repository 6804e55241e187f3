#ifndef RADSERVE_ADDON_FILES_H_
#define RADSERVE_ADDON_FILES_H_

#include <napi.h>

namespace radserve {

/// `linkDescriptor(fd, path)`: gives an open file, which may have no name yet (O_TMPFILE), the name `path`;
/// linkat(2). Node's own link(2) does not follow /proc/self/fd. False where something has the name, or the
/// file system refuses.
Napi::Value LinkDescriptor(const Napi::CallbackInfo& info);

/// `lockDescriptor(fd)`: takes the exclusive lock of an open file without waiting; flock(2). False if another open of
/// the file, in this process or another, has it. An error is thrown where the file system has no such locks.
/// The lock ends when the descriptor is closed or the process ends.
Napi::Value LockDescriptor(const Napi::CallbackInfo& info);

}  // namespace radserve

#endif  // RADSERVE_ADDON_FILES_H_
