#pragma once

#include <cstddef>

namespace radserve {

/// Memory for what models compute on their way. What a run frees stays with its thread and serves
/// the next run there, whatever the model: it is in that core's cache and its pages are mapped. An
/// arena that all threads share gives each what another core has just written, which costs small
/// models a quarter of their time. Between threads nothing is waited for, unless somebody frees it
/// all.
///
/// Blocks of 64 MiB and more, and of 32 MiB and more that are freed elsewhere, serve the next run
/// on any thread that asks for as many bytes; 256 MiB of them at most are kept, and none once a run
/// asks for others.
///
/// Aligned to 64 bytes; nullptr if there is no memory.
void* AllocateRunMemory(size_t bytes);
/// Memory of AllocateRunMemory, from any thread; outside a RunScope less than 32 MiB goes back to
/// the system.
void FreeRunMemory(void* memory);
/// Gives back what no thread keeps: before a run that takes its memory elsewhere.
void DropLargeRunMemory();
/// Gives back what is kept.
void DropRunMemory();
size_t KeptRunMemory();

/// The most bytes that the calling thread has had at once in its last RunScope, of what it took
/// there.
size_t MostOfLastRun();

/// While it lives, the calling thread keeps what it frees. What sixteen scopes in a row did not
/// need goes back.
class RunScope {
 public:
  RunScope();
  ~RunScope();
  RunScope(const RunScope&) = delete;
  RunScope& operator=(const RunScope&) = delete;
};

}  // namespace radserve
