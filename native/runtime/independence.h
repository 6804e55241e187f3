#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "base/tensor.h"
#include "runtime/session.h"

namespace radserve {

/// Fills a row, [1, ...] of each input, with the numbers of a pattern.
using RowFiller = std::function<void(size_t pattern, std::span<Tensor> row)>;

/// Puts a tensor for each input, in the graph's order, into a row of a bucket.
void CopyRow(std::span<const Tensor> row, int64_t to, Bucket& bucket);

/// Whether tensors are of the same types and shapes, with the same bits.
bool SameBits(const std::vector<Tensor>& a, const std::vector<Tensor>& b);

/// Whether each row of a batch gives what it gives beside other rows, in another place, and alone.
///
/// A GPU may sum in another order for each size of batch, so that a row alone, or in another place,
/// is compared by its numbers: graphs that mix their rows are further off than rounding. Beside
/// other rows, in the same place, it has to give the same bits, unless the same batch does not give
/// the same bits twice.
///
/// @param row a tensor for each input of the graph, in its order
/// Throws EngineError: OutOfMemory if a smaller batch may succeed, `cancelled` once `stop` is
/// requested, and what a run throws.
bool RowsAreIndependent(Session& session, std::span<const std::string> outputs, int64_t rows,
                        std::span<Tensor> row, const RowFiller& fill, const std::stop_token& stop);

}  // namespace radserve
