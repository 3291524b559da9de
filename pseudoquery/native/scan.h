/* How a scan goes through documents, whatever the instructions. See scan.c. */
#ifndef PSEUDOQUERY_SCAN_H
#define PSEUDOQUERY_SCAN_H

#include "kernels.h"

#include <string.h>

/* Rows of a block of documents, unless one document has more: so many stay in the nearest cache. */
enum { BLOCK = 64 };
/* Dots that may be read, and are not used, behind the last one. */
enum { SLACK = 16 };

/* Bytes that are fetched before they are needed: of four rows at once, a processor sees no pattern. */
enum { AHEAD = 12288, CACHE_LINE = 64 };

/* Fetch what is multiplied soon. It is no error to fetch what does not exist. */
static inline void fetch_ahead(const ScanJob *job, const ScanWork *work, size_t row, size_t query) {
    if (query == 0) {
        const uintptr_t from = (uintptr_t)work->rows[row] + AHEAD;
        for (size_t i = 0; i < ROW_TILE * job->dim; i += CACHE_LINE) {
            __builtin_prefetch((const void *)(from + i));
        }
    }
}

/* Multiply a tile of queries with the rows of a block. */
typedef void Multiply(const ScanJob *, const ScanWork *, size_t rows, size_t query);
/* Score the documents from `first` to before `last` by the dots of one query. */
typedef void Score(const ScanJob *, size_t first, size_t last, const float *dots, float *estimates);

static inline void scan_blocks(const ScanJob *job, const ScanWork *work, Multiply *multiply,
                               Score *score) {
    size_t last = 0;
    while (last < job->documents) {
        const size_t first = last;
        size_t rows = 0;
        for (; last < job->documents && rows < BLOCK; last++) {
            for (int64_t i = 0; i < job->counts[last]; i++, rows++) {
                const size_t row = (size_t)(job->starts[last] + i);
                work->rows[rows] = job->codes + row * job->dim;
                work->scales[rows] = job->code_scales[row];
            }
        }
        if (!rows) {
            break;
        }
        for (size_t spare = rows; spare % ROW_TILE; spare++) {
            work->rows[spare] = work->rows[rows - 1];
            work->scales[spare] = 0;
        }
        for (size_t query = 0; query < job->query_count; query += QUERY_TILE) {
            multiply(job, work, rows, query);
            for (size_t j = 0; j < QUERY_TILE && query + j < job->query_count; j++) {
                score(job, first, last, work->dots + j * work->capacity,
                      job->estimates + (query + j) * job->stride);
            }
        }
    }
}

#endif
