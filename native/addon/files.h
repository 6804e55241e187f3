#ifndef RADSERVE_ADDON_FILES_H_
#define RADSERVE_ADDON_FILES_H_

#include <napi.h>

namespace radserve {

/// `linkDescriptor(fd, path)`: gives an open file, which may have no name yet (O_TMPFILE), the name `path`;
/// linkat(2). Node's own link(2) does not follow /proc/self/fd. False where something has the name, or the
/// file system refuses.
Napi::Value LinkDescriptor(const Napi::CallbackInfo& info);

}  // namespace radserve

#endif  // RADSERVE_ADDON_FILES_H_
